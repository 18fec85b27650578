"""Who is asking: `request.user` on every request and `scope["user"]` on every live socket."""

from dataclasses import dataclass

from broker.schema.sight import has_tag


@dataclass(frozen=True, slots=True)
class User:
    """A signed-in user with the tags the broker told. An administrator holds every right."""

    name: str
    tags: tuple[str, ...] = ()

    @property
    def is_authenticated(self) -> bool:
        return bool(self.name)

    @property
    def is_management(self) -> bool:
        """May use pages and API at all."""
        return has_tag(self.tags, "management")

    @property
    def is_administrator(self) -> bool:
        return has_tag(self.tags, "administrator")

    @property
    def is_monitoring(self) -> bool:
        return has_tag(self.tags, "monitoring")

    @property
    def is_policymaker(self) -> bool:
        return has_tag(self.tags, "policymaker")


ANONYMOUS = User("")

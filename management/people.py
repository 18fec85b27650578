"""Who is asking: `request.user` on every request and `scope["user"]` on every live socket."""

from dataclasses import dataclass

TAGS = ("management", "policymaker", "monitoring", "administrator")


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
        return any(tag in TAGS for tag in self.tags)

    @property
    def is_administrator(self) -> bool:
        return "administrator" in self.tags

    @property
    def is_monitoring(self) -> bool:
        return self.is_administrator or "monitoring" in self.tags

    @property
    def is_policymaker(self) -> bool:
        return self.is_administrator or "policymaker" in self.tags


NOBODY = User("")

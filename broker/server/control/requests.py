"""A request as its verb sees it: who asks, what the arguments are, what may be answered.

The rules of tags and vhosts are RabbitMQ's, measured at its HTTP API; refusals are 401 there, with
these reasons.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from broker.access import Rights, User
from broker.schema.control_schema import ERRORS, NOUNS, VERBS, Arguments, Tag
from broker.schema.sight import Sight

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.server.control.server import Session

A = TypeVar("A", bound=Arguments)
Handler = Callable[["Request[Any]"], Awaitable[Any]]

_TAG_REASONS: dict[Tag, str] = {
    "management": "Not management user",
    "policymaker": "Not policymaker user",
    "monitoring": "Not monitor user",
    "administrator": "Not administrator user",
}


class RequestError(Exception):
    """A request that is refused. `error` is a word of `control_schema.ERRORS`."""

    def __init__(self, error: str, reason: str, status: int | None = None) -> None:
        super().__init__(reason)
        self.status = status if status is not None else ERRORS[error].status
        self.error = error
        self.reason = reason


def bad_request(reason: str) -> RequestError:
    return RequestError("bad_request", reason)


def not_found(reason: str) -> RequestError:
    return RequestError("not_found", reason)


def not_authorised(reason: str) -> RequestError:
    return RequestError("not_authorised", reason)


class Caller:
    """Who asks. Without a user it is the appliance itself, which may do everything. What the caller
    sees is decided by `sight`; here it becomes a refusal."""

    def __init__(self, broker: Broker, user: User | None) -> None:
        self._broker = broker
        self.sight = Sight(broker.access, user)

    @property
    def user(self) -> User | None:
        return self.sight.user  # type: ignore[return-value]

    @user.setter
    def user(self, user: User) -> None:
        self.sight.user = user

    @property
    def name(self) -> str:
        return self.user.name if self.user is not None else ""

    def require(self, tag: Tag) -> None:
        """Raises RequestError 401 unless the tags are enough."""
        if not self.sight.has(tag):
            raise not_authorised(_TAG_REASONS.get(tag, "Access refused."))

    def require_owner(self, user: str | None) -> None:
        """Raises RequestError 401 unless the caller is this user or administrator."""
        if self.user is not None and user != self.user.name:
            self.require("administrator")

    def vhost(self, name: str) -> Any:
        """The vhost, if the caller may see into it. Raises RequestError 401, or 404 for all who
        may see every vhost: others do not learn which exist."""
        if not self.sight.of_vhost(name):
            raise not_authorised("User not authorised to access virtual host")
        vhost = self._broker.vhosts.get(name)
        if vhost is None:
            raise not_found("vhost_not_found")
        return vhost

    def vhosts(self, name: str | None = None) -> list[Any]:
        """The named vhost, or all that the caller sees into."""
        if name is not None:
            return [self.vhost(name)]
        return [vhost for vhost in self._broker.vhosts.values() if self.sight.of_vhost(vhost.name)]

    def reach(self, noun: str, vhost: str | None, user: str | None) -> list[Any]:
        """The vhosts in which a list of the noun looks, for a noun that is shown by vhost. Raises
        RequestError for filters that name a vhost or user whose things the caller may not ask
        about, whether there is one or not."""
        rule = NOUNS[noun].scope
        if rule == "vhost":
            return self.vhosts(vhost)
        if rule == "connection" and vhost is not None:
            self.vhost(vhost)
        if rule in ("user", "vhost name") and user is not None:
            self.require_owner(user)
        return []

    def rights(self, vhost: str) -> Rights:
        """What the caller may do in a vhost."""
        user = self.user.name if self.user is not None else None
        rights: Rights = self._broker.access.rights(user, vhost)
        return rights

    def check(self, vhost: str, kind: Any, resource_kind: str, name: str) -> None:
        """Raises AccessRefused unless the user may do this; the appliance may."""
        self.rights(vhost).check(kind, resource_kind, name)


@dataclass(slots=True)
class Request(Generic[A]):
    """One request on its way through a verb."""

    broker: Broker
    session: Session
    caller: Caller
    args: A


HANDLERS: dict[str, Handler] = {}


def handles(name: str) -> Callable[[Handler], Handler]:
    """Enters a function as the one that carries out a verb of the table."""
    if name not in VERBS:
        raise LookupError(f"{name} is not in the table of verbs")

    def enter(handler: Handler) -> Handler:
        HANDLERS[name] = handler
        return handler

    return enter

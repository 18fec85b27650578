"""What a connection asks of the broker: the only interface to it that this package uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from broker.wire.channel import Channel
    from broker.wire.connection import Connection


class Host(Protocol):
    """The broker, as a connection sees it."""

    config: Any
    access: Any
    persister: Any
    topology: Any
    server_properties: dict[str, Any]
    reply_queues: dict[str, Any]
    uncommitted: Any
    """Bytes of each user's transactions: `broker.wire.transaction.Uncommitted`."""
    leaving: Any
    """Sessions that are over and wait for their client to close: `add`, `discard`."""

    clients: Any
    """`changed` is called for connections, channels and consumers that come and go."""

    stopping: bool

    @property
    def vhosts(self) -> Mapping[str, Any]: ...

    def login(self, connection: Connection, user: str, password: str) -> Any:
        """The user's name, where the password was verified lately. Otherwise it is checked, and
        answered with `connection.logged_in` or `connection.login_refused`; what is returned has
        `.cancel()`, for a client that leaves before."""

    def mechanisms(self, connection: Connection) -> tuple[str, ...]:
        """SASL mechanisms that are offered to the connection: those it can log in with."""

    def takes_external(self, connection: Connection) -> bool:
        """Whether EXTERNAL is known to the listener; it may be refused all the same."""

    def login_external(self, connection: Connection) -> None:
        """Checks the client's certificate; answers as `login` does."""

    def admit(self, connection: Connection, vhost: str) -> None:
        """Raises NotAllowed if a connection limit is reached."""

    def channels_of(self, user: str) -> int:
        """How many channels all connections of a user have."""

    @property
    def alarm_reason(self) -> str:
        """What connection.blocked says, such as `low on disk`."""

    def later(self, seconds: float, callback: Callable[[], None]) -> Any:
        """A timer; its `.cancel()` takes it back."""

    def opened(self, connection: Connection) -> None: ...

    def closed(self, connection: Connection) -> None: ...

    def channel_opened(self, channel: Channel) -> None: ...
    def channel_closed(self, channel: Channel) -> None: ...

"""What the broker calls of a feature. A feature overrides what it needs; the rest costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.queues.types import MessageQueue
    from broker.routing.exchange import BoundExchange
    from broker.vhosts.vhost import VHost
    from broker.wire.connection import Connection


class Feature:
    """One add-on of one broker. Times are ms of the broker's clock."""

    directories: tuple[str, ...] = ()
    """What it has in the directory of each vhost, parents first."""

    def overrides(self, hook: str) -> bool:
        """Whether it needs one of the calls below."""
        return getattr(type(self), hook) is not getattr(Feature, hook)

    def start(self, now_ms: int) -> None:
        """Everything is recovered; the loop does not run yet."""

    def tick(self, now_ms: int) -> Iterator[Callable[[], object] | None] | None:
        """Once a second. May return steps; one that waits for the disk is a callable."""
        return None

    def exchange_configured(self, vhost: VHost, exchange: BoundExchange) -> None:
        """An exchange was declared or recovered, or other arguments hold for it now."""

    def exchange_deleted(self, vhost: VHost, exchange: BoundExchange) -> None:
        """An exchange was deleted."""

    def queue_configured(self, vhost: VHost, queue: MessageQueue) -> None:
        """A queue was declared or recovered, or other arguments hold for it now."""

    def queue_deleted(self, queue: MessageQueue, now_ms: int) -> None:
        """A queue was deleted."""

    def connection_closed(self, connection: Connection, now_ms: int) -> None:
        """A connection has ended."""

    def used(self, vhost: VHost, user: str, client: str, counts: Mapping[str, int]) -> None:
        """A user published or took messages over no connection, but by `client`: what that adds to
        the columns of the user's lines in the usage feed."""

    def vhost_recovered(self, vhost: VHost) -> None:
        """The definitions of a vhost are read and each exchange and queue was configured."""

    def vhost_started(self, vhost: VHost) -> None:
        """The loop runs."""

    def stop(self, now_ms: int) -> None:
        """Clean stop; the persister still writes what is left."""

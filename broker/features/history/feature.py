"""Follows the policies: which vhosts have a history, and of what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.features.history.vhost_history import VHostHistory
from broker.features.joints import Feature
from broker.schema.message_history import HISTORY

if TYPE_CHECKING:
    from broker.queues.types import MessageQueue
    from broker.routing.exchange import BoundExchange
    from broker.vhosts.vhost import VHost


class Histories(Feature):
    """The histories of the vhosts that have, or had, something recorded in this run."""

    def __init__(self, host: Any) -> None:
        self._host = host
        self._all: dict[VHost, VHostHistory] = {}
        self._gone = (0, 0)
        """Counts of vhosts that were deleted."""

    def of(self, vhost: VHost) -> VHostHistory | None:
        """What is recorded in a vhost; None: nothing was since the start."""
        return self._all.get(vhost)

    def counts(self) -> tuple[int, int]:
        """Records since the start, and bytes of bodies in them."""
        books = [history.book for history in self._all.values()]
        return (
            self._gone[0] + sum(book.records for book in books),
            self._gone[1] + sum(book.record_bytes for book in books),
        )

    def exchange_configured(self, vhost: VHost, exchange: BoundExchange) -> None:
        self._configured(vhost, exchange)

    def queue_configured(self, vhost: VHost, queue: MessageQueue) -> None:
        # What the history itself gets is not recorded: that would never end.
        if queue.name != HISTORY:
            self._configured(vhost, queue)

    def _configured(self, vhost: VHost, owner: Any) -> None:
        history = self._all.get(vhost)
        in_force = owner.policy
        if history is None:
            if in_force is None or in_force.definition.get("history", "off") == "off":
                return
            history = self._all[vhost] = VHostHistory(
                vhost, f"{round(self._host.config.history_retention)}s"
            )
        history.configure(owner, in_force)

    def exchange_deleted(self, vhost: VHost, exchange: BoundExchange) -> None:
        history = self._all.get(vhost)
        if history is not None:
            history.forget(exchange)
            if self._host.vhosts.get(vhost.name) is not vhost:
                book = self._all.pop(vhost).book
                records, size = self._gone
                self._gone = records + book.records, size + book.record_bytes

    def queue_deleted(self, queue: MessageQueue, now_ms: int) -> None:
        vhost = self._host.vhosts.get(queue.vhost_name)
        history = self._all.get(vhost)
        if history is None:
            return
        if queue.name == HISTORY:
            history.renew()
        else:
            history.forget(queue)

    def vhost_started(self, vhost: VHost) -> None:
        history = self._all.get(vhost)
        if history is not None:
            history.renew()

"""Follows the policies: which vhosts have a history, and of what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.features.history.book import Book
from broker.features.history.vhost_history import VHostHistory
from broker.features.interface import Feature
from broker.kernel.recording import EVENT_REPLAYED
from broker.schema.message_history import HISTORY, place_of

if TYPE_CHECKING:
    from broker.queues.types import MessageQueue
    from broker.routing.exchange import BoundExchange
    from broker.vhosts.vhost import VHost


Counts = tuple[int, int, int, int]


class Histories(Feature):
    """The histories of the vhosts that have, or had, something recorded in this run."""

    def __init__(self, host: Any) -> None:
        self._host = host
        self._all: dict[VHost, VHostHistory] = {}
        self._gone = (0, 0, 0, 0)
        """Counts of vhosts that were deleted."""

    def of(self, vhost: VHost) -> VHostHistory | None:
        """What is recorded in a vhost; None: nothing was since the start."""
        return self._all.get(vhost)

    def counts(self) -> Counts:
        """Since the start: records, bytes of bodies in them, events, and events given up."""
        return _sums([self._gone, *(_counts(history.book) for history in self._all.values())])

    def problems(self) -> list[tuple[str, str, str]]:
        """For the list of problems: severity, name, sentence."""
        texts = (history.problem() for history in self._all.values())
        return [("warn", "history", text) for text in texts if text]

    def replayed(self, stream: MessageQueue, offset: int, queues: tuple[Any, ...]) -> None:
        """A message of a history was handed over once more."""
        history = self._all.get(self._host.vhosts.get(stream.vhost_name))
        if history is not None and history.keeps_events:
            place = place_of(stream.incarnation, offset)
            history.book.add_event(EVENT_REPLAYED, place, "", queues)

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
                vhost,
                f"{round(self._host.config.history_retention)}s",
                Book(self._host.persister, lambda: self._host.config.history_events_buffer),
            )
        history.configure(owner, in_force)

    def exchange_deleted(self, vhost: VHost, exchange: BoundExchange) -> None:
        history = self._all.get(vhost)
        if history is not None:
            history.forget(exchange)
            if self._host.vhosts.get(vhost.name) is not vhost:
                history = self._all.pop(vhost)
                self._gone = _sums([self._gone, _counts(history.book)])

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


def _counts(book: Book) -> Counts:
    return book.records, book.record_bytes, book.events, book.events_lost


def _sums(rows: list[Counts]) -> Counts:
    records, size, events, lost = (sum(column) for column in zip(*rows, strict=True))
    return records, size, events, lost

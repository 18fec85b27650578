"""Which queues and exchanges drop duplicates, and where they keep the ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.features.dedup.duplicates import Duplicates, settings_of
from broker.features.dedup.id_log import IdLog
from broker.features.dedup.unlogged import unlogged
from broker.features.interface import Feature
from broker.store.files import disk

if TYPE_CHECKING:
    from broker.queues.types import MessageQueue
    from broker.routing.exchange import BoundExchange
    from broker.vhosts.vhost import VHost

# A file of ids holds at least this number, so that small caches do not change files often.
FILE_ENTRIES_MIN = 1024


class Deduplication(Feature):
    """Message deduplication in all vhosts."""

    directories = ("deduplication",)

    def __init__(self, persister: Any) -> None:
        self._persister = persister
        self._logs: dict[Any, dict[int, IdLog]] = {}

    def exchange_configured(self, vhost: VHost, exchange: BoundExchange) -> None:
        # The predeclared exchanges have no id to keep a log by, and no arguments.
        if exchange.incarnation:
            exchange.duplicates = self._made(vhost, exchange, exchange.duplicates)

    def exchange_deleted(self, vhost: VHost, exchange: BoundExchange) -> None:
        exchange.duplicates = None
        self._drop_log(vhost, exchange.incarnation)

    def queue_configured(self, vhost: VHost, queue: MessageQueue) -> None:
        if hasattr(queue, "duplicates"):
            queue.duplicates = self._made(vhost, queue, queue.duplicates)

    def queue_deleted(self, queue: MessageQueue, now_ms: int) -> None:
        for vhost in list(self._logs):
            if vhost.name == queue.vhost_name:
                self._drop_log(vhost, queue.incarnation)

    def _made(self, vhost: VHost, owner: Any, current: Duplicates | None) -> Duplicates | None:
        settings = settings_of(owner.arguments)
        if settings is None or current is not None:
            return current
        log = None
        if owner.durable:
            log = IdLog(
                self._persister,
                f"{vhost.directory}/deduplication",
                owner.incarnation,
                max(settings["size"], FILE_ENTRIES_MIN),
            )
            self._logs.setdefault(vhost, {})[owner.incarnation] = log
        found = Duplicates(**settings, durable=owner.durable, log=log)
        if log is not None and vhost.recovering:
            logged = log.recover(vhost.problems)
            found.restore(logged, _unlogged(vhost, owner, logged))
        return found

    def _drop_log(self, vhost: VHost, incarnation: int) -> None:
        log = self._logs.get(vhost, {}).pop(incarnation, None)
        if log is not None:
            log.delete()
        if not self._logs.get(vhost, True):
            del self._logs[vhost]

    def vhost_recovered(self, vhost: VHost) -> None:
        directory = f"{vhost.directory}/deduplication"
        disk.makedirs(directory)
        vhost.owned.append((directory, set(self._logs.get(vhost, {}))))


def _unlogged(
    vhost: VHost, owner: Any, logged: list[tuple[bytes, int, int]]
) -> list[tuple[int, bytes]]:
    """What a crash left of a queue's messages without entries of their ids. An exchange has no
    messages of its own: what was in doubt there is routed again."""
    if hasattr(owner, "messages_ready"):
        since = max((published for _, _, published in logged), default=0)
        directory = f"{vhost.queues_directory}/{owner.incarnation:016x}"
        return unlogged(directory, owner.incarnation, since)
    return []

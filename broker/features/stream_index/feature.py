"""Which streams are indexed, and the work on the indexes of all vhosts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from broker.features.interface import Feature
from broker.features.stream_index.vhost_index import VHostIndex
from broker.schema.errors import BoundReached
from broker.schema.index_keys import keys_of
from broker.store.files import disk
from broker.vhosts.policies import effective

if TYPE_CHECKING:
    from broker.queues.types import MessageQueue
    from broker.vhosts.vhost import VHost

ARGUMENT = "x-stream-index"

LEAST_BYTES = 2 << 20
"""New messages of one vhost that a further step within a round is worth."""


class StreamIndexes(Feature):
    """The indexes of the vhosts that have streams with an index, or had some."""

    def __init__(self, host: Any) -> None:
        self._host = host
        self._all: dict[VHost, VHostIndex] = {}
        self._searches = 0
        self._streams: dict[VHost, dict[int, MessageQueue]] = {}

    def of(self, vhost: VHost) -> VHostIndex | None:
        """The index of a vhost."""
        return self._all.get(vhost)

    def all(self) -> list[tuple[VHost, VHostIndex]]:
        """All of them."""
        return list(self._all.items())

    @contextlib.contextmanager
    def searching(self, most: int) -> Iterator[None]:
        """Around a search. Raises BoundReached."""
        if self._searches >= most:
            raise BoundReached(
                f"{most} searches in streams are under way (stream_searches_max); try again later"
            )
        self._searches += 1
        try:
            yield
        finally:
            self._searches -= 1

    def queue_configured(self, vhost: VHost, queue: MessageQueue) -> None:
        if queue.type != "stream":
            return
        self._streams.setdefault(vhost, {})[queue.incarnation] = queue
        names = keys_of(effective("queue", queue.arguments, queue.policy).get(ARGUMENT))
        index = self._all.get(vhost)
        if index is None and names:
            index = self._made(vhost)
        elif index is not None:
            index.configure(queue, names)

    def _made(self, vhost: VHost) -> VHostIndex:
        tiers = self._host.tiers
        directory = f"{vhost.directory}/index"
        objects = tiers.index_objects(vhost.directory) if tiers is not None else None
        index = VHostIndex(vhost.name, directory, self._host, objects)
        self._all[vhost] = index
        for queue in self._streams.get(vhost, {}).values():
            self.queue_configured(vhost, queue)
        return index

    def queue_deleted(self, queue: MessageQueue, now_ms: int) -> None:
        if queue.type != "stream":
            return
        for vhost, streams in self._streams.items():
            if vhost.name == queue.vhost_name and streams.pop(queue.incarnation, None) is not None:
                index = self._all.get(vhost)
                if index is not None:
                    index.forget(queue)

    def vhost_recovered(self, vhost: VHost) -> None:
        """Files of a time when a stream was indexed go when nothing needs them."""
        if vhost not in self._all and disk.exists(f"{vhost.directory}/index"):
            self._made(vhost)

    def tick(self, now_ms: int) -> Iterator[Callable[[], object] | None] | None:
        return self._round() if self._all else None

    def _round(self) -> Iterator[Callable[[], object] | None]:
        """A step of each index in turn, as long as there are any."""
        for vhost, index in self.all():
            if self._host.vhosts.get(vhost.name) is not vhost:
                del self._all[vhost]
                self._streams.pop(vhost, None)
                index.give_up_objects()
                yield index.remove
        going = [index for _, index in self.all()]
        least = 0
        while going:
            for index in list(going):
                step = index.next_step(least)
                if step is not None:
                    yield step
                if step is None or index.problem:
                    # What fails is tried again with the next round.
                    going.remove(index)
            # Less than this waits for the next round: each step has a price of its own.
            least = LEAST_BYTES

    def stop(self, now_ms: int) -> None:
        for _, index in self.all():
            index.close()

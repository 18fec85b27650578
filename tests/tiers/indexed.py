"""The rig of tiers with an index over its streams."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from broker.features.stream_index.feature import StreamIndexes
from broker.features.stream_index.vhost_index import VHostIndex
from broker.fields import properties
from broker.store.keys.searching import Answer, Wanted
from broker.vhosts.policies import Policy
from tests.tiers.rig import Tiered

KEY = "message_id"
EVERY = 7
"""So many values the header `shared` has."""


class Indexed(Tiered):
    """Each message has its offset as message_id, and `offset % EVERY` as header `shared`."""

    def __init__(self, directory: Path, store: Path, **settings: Any) -> None:
        given = {"stream_index_items": 64, "stream_index_local_max": 0, **settings}
        super().__init__(directory, store, **given)
        self.stream_indexes = StreamIndexes(self)
        self.features.append(self.stream_indexes)

    def start(self) -> Indexed:
        super().start()
        return self

    def again(self, **settings: Any) -> Indexed:
        """After a kill."""
        self.kill()
        return Indexed(self.directory, self.store.parent, **settings).start()

    def properties_of(self, offset: int) -> bytes:
        headers = {"shared": offset % EVERY}
        return properties.encode(
            {"delivery_mode": 2, "message_id": str(offset), "headers": headers}
        )

    def set_policy(self, **definition: Any) -> None:
        """For all streams; names have underscores."""
        given = {name.replace("_", "-"): value for name, value in definition.items()}
        self.policies.put(Policy("/", "p", ".*", given))
        for _ in self.vhost.apply_policies():
            pass
        self.sync()

    @property
    def index(self) -> VHostIndex:
        found = self.stream_indexes.of(self.vhost)
        assert found is not None
        return found

    def behind(self) -> int:
        """Bytes of the stream that are not indexed."""
        return self.index.behind(self.stream.incarnation, self.stream.store.synced_end)

    def catch_up(self) -> None:
        """Seconds pass until everything is indexed, and all that may be uploaded is."""
        self.until(lambda: not self.behind() and not self.index.series.work_waits)

    def find(self, value: Any, name: str = KEY, most: int = 1000, **wanted: Any) -> Answer:
        """A search, in a thread, while the loop goes on."""
        reads = wanted.pop("reads", 10_000)
        call = self.index.search(
            self.stream, name, str(value).encode(), Wanted(-(2**62), 2**62, most, reads=reads)
        )
        found: list[Answer] = []
        thread = threading.Thread(target=lambda: found.append(call()))
        thread.start()
        deadline = time.monotonic() + 30
        while thread.is_alive():
            assert time.monotonic() < deadline, self.tiers.figures()
            self.rest()
            self.seconds += 0.25
            self.ring()
            thread.join(0.001)
        return found[0]

    def offsets_of(self, value: Any, **more: Any) -> list[int]:
        """The offsets of a complete answer."""
        answer = self.find(value, **more)
        assert answer.is_complete, answer.reasons
        return [message.offset for message in answer.messages]

    def check(self, every: int = 5) -> None:
        """What is asked for is found, and nothing else."""
        store = self.stream.store
        for offset in range(store.first_offset, store.next_offset, every):
            assert self.offsets_of(offset) == [offset]
        assert self.offsets_of("absent") == []

    def index_objects(self) -> set[str]:
        """Objects of the index in the store."""
        return {name for name in self.objects() if "/index-" in name}

    def states(self) -> dict[str, int]:
        """Files of the index, by state."""
        return {state: row["files"] for state, row in self.index.series.figures().items()}

    def counted(self, *kinds: str) -> int:
        """Tasks of these kinds that were carried out since the last call."""
        count = sum(kind in kinds for kind, _ in self.done)
        self.done.clear()
        return count

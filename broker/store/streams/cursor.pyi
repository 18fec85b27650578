from collections.abc import Callable

from broker.store.commit.persister import Dirty
from broker.store.streams.store import StreamStore

class StreamCursor(Dirty):
    passing: bool
    def __init__(self, store: StreamStore, wake: Callable[[], object]) -> None: ...
    @property
    def store(self) -> StreamStore: ...
    @property
    def offset(self) -> int: ...
    @property
    def segments_skipped(self) -> int: ...

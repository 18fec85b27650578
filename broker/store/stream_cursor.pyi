from collections.abc import Callable

from broker.store.persister import Dirty
from broker.store.stream_store import StreamStore

class StreamCursor(Dirty):
    passing: bool
    def __init__(self, store: StreamStore, wake: Callable[[], object]) -> None: ...
    @property
    def store(self) -> StreamStore: ...
    @property
    def offset(self) -> int: ...
    @property
    def segments_skipped(self) -> int: ...

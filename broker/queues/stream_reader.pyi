from collections.abc import Callable
from typing import Any

from broker.kernel.contracts import Consumer, Queue
from broker.kernel.large_body import LargeBody
from broker.kernel.turn import Turn
from broker.queues.stream_arguments import Start
from broker.queues.stream_filter import StreamFilter
from broker.store.streams.cursor import StreamCursor
from broker.store.streams.store import StreamStore

_Row = tuple[int, int, bytes, bytes, bytes, bytes | LargeBody]

class Readers:
    paused: bool
    def __init__(self, turn: Turn, store: StreamStore) -> None: ...
    @property
    def all(self) -> list[StreamReader]: ...
    @property
    def expected(self) -> list[Consumer]: ...
    @property
    def segments_skipped(self) -> int: ...
    def resume(self) -> None: ...

class FilteredCursor(StreamCursor): ...

class StreamReader(Queue):
    def __init__(
        self,
        stream: Any,
        readers: Readers,
        start: Start,
        filter: StreamFilter | None,
        tag: str | None,
    ) -> None: ...
    @property
    def stream(self) -> Any: ...
    @property
    def consumer(self) -> Consumer | None: ...
    @property
    def offset(self) -> int: ...
    @property
    def lag(self) -> int: ...
    def reader_figures(self) -> dict[str, Any]: ...

class StreamBrowser:
    def __init__(
        self,
        store: StreamStore,
        start: Start,
        count: int,
        bytes_max: int,
        later: Callable[[float, Callable[[], None]], object],
        done: Callable[[list[_Row]], object],
    ) -> None: ...
    @property
    def trouble(self) -> str | None: ...
    def go_on(self) -> None: ...

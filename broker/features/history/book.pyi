from collections.abc import Callable
from typing import Any

from broker.kernel.recording import Observer

OFF: int
HEADERS: int
FULL: int

class Way:
    def __init__(
        self, level: int, places: tuple[Any, ...] | None, fields: list[bytes] | None
    ) -> None: ...

class Book:
    stream: Any
    levels: dict[Any, int]
    records: int
    record_bytes: int
    @property
    def version(self) -> int: ...
    @property
    def events(self) -> int: ...
    @property
    def events_lost(self) -> int: ...
    def __init__(self, persister: Any, memory: Callable[[], int]) -> None: ...
    def forget_ways(self) -> None: ...
    def set_level(self, owner: Any, level: int) -> None: ...
    def observe(self, queue: Any, on: bool) -> None: ...
    def add_event(
        self, event: int, place: str, queue: str, targets: tuple[Any, ...] = ()
    ) -> None: ...

class QueueObserver(Observer):
    def __init__(self, book: Book, queue: Any) -> None: ...

from typing import Any

from broker.kernel.recording import Recording

OFF: int
HEADERS: int
FULL: int

class Book:
    stream: Any
    levels: dict[Any, int]
    version: int
    @property
    def records(self) -> int: ...
    @property
    def record_bytes(self) -> int: ...
    def set_level(self, owner: Any, level: int) -> None: ...

class ChannelRecording(Recording):
    def __init__(self, book: Book, user: str, connection: str) -> None: ...

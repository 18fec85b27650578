from struct import Struct
from typing import Self

from broker.store.files.sound_search import SoundSearch

HEADER_BYTES: int
TOC_ROW: Struct
RECORD_OVERHEAD: int

class BodyFile:
    first: int
    last: int
    generation: int
    size: int
    valid: int
    flying: int
    sealed: bool
    collecting: bool
    dropped_at: float
    spared_until: float
    path: str
    def __new__(cls, directory: str, first: int, last: int, generation: int) -> Self: ...
    @property
    def toc_path(self) -> str: ...
    @property
    def garbage(self) -> int: ...

class BodySearch(SoundSearch): ...

def header(first: int, last: int) -> bytes: ...
def toc_bytes(rows: bytes, incarnation: int, first: int) -> bytes: ...
def read_toc(data: bytes, incarnation: int, first: int, size: int) -> bytes | None: ...
def scan(data: bytes, incarnation: int) -> tuple[bytes, list[tuple[int, int]], list[str]]: ...
def is_sound(record: bytes, incarnation: int) -> bool: ...

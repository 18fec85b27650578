from collections.abc import Collection

from broker.store.keys.candidates import Candidates
from broker.store.keys.rows import Row

class Unsealed:
    path: str
    number: int
    file_id: int
    serial: int
    secret: bytes
    capacity: int
    slot_count: int
    count: int
    begin_ms: int
    first_ms: int
    last_ms: int
    length: int
    written: int
    torn: bool
    def __init__(
        self, path: str, number: int, file_id: int, serial: int, secret: bytes, capacity: int
    ) -> None: ...
    @property
    def is_full(self) -> bool: ...
    @property
    def unwritten(self) -> bool: ...
    @property
    def rows(self) -> list[Row]: ...
    def stream(self, incarnation: int, position: tuple[int, int]) -> int: ...
    def next_of(self, incarnation: int) -> tuple[int, int] | None: ...
    def put(
        self, hash: int, row: int, segment: int, position: int, size: int, time: int
    ) -> bool: ...
    def pass_by(self, row: int, segment: int, position: int, time: int) -> None: ...
    def find(
        self, hash: int, first_ms: int, last_ms: int, streams: Collection[int] | None
    ) -> Candidates: ...
    def flush(self) -> int: ...
    def close(self) -> None: ...
    @staticmethod
    def load(path: str) -> Unsealed: ...

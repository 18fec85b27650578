from _typeshed import ReadableBuffer

HEADER: int
HEAD_MOST: int
REFERENCE: int
PERSISTENT: int

def first_offset(head: ReadableBuffer) -> tuple[int, bool] | None: ...
def settled(acks: ReadableBuffer, incarnation: int, segment: int) -> bytes: ...

class Scan:
    def __init__(
        self,
        data: ReadableBuffer,
        gone: ReadableBuffer,
        incarnation: int,
        segment: int,
        is_stream: bool,
    ) -> None: ...
    @property
    def position(self) -> int: ...
    @property
    def damaged(self) -> bool: ...
    @property
    def marks(self) -> int: ...
    def next(
        self, count_max: int, bytes_max: int
    ) -> (
        tuple[
            int,
            bytearray,
            bytearray,
            bytearray,
            bytearray,
            list[tuple[bytearray, bytearray]],
        ]
        | None
    ): ...

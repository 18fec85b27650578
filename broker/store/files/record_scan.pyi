from _typeshed import ReadableBuffer

def settled(acks: ReadableBuffer, incarnation: int, segment: int) -> bytearray: ...

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

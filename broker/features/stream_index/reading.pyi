from broker.store.keys.unsealed import Unsealed

HEADER: int
LARGE: int

READ_ALL: int
FULL: int
MORE: int
DAMAGED: int

class KeyReader:
    position: int
    needed: int
    items: int
    time: int
    def __init__(self, names: tuple[str, ...]) -> None: ...
    def read(
        self,
        file: Unsealed,
        row: int,
        data: bytes,
        incarnation: int,
        segment: int,
        position: int,
    ) -> int: ...

def record_of(
    data: bytes, incarnation: int, segment: int, position: int, size: int
) -> tuple[int, int, bytes] | int: ...
def value_in(properties: bytes, name: str) -> bytes | None: ...

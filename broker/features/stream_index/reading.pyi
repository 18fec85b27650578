from broker.store.keys.unsealed import Unsealed

BACK: int
HEADER: int
LARGE: int

READ_ALL: int
FULL: int
MORE: int
DAMAGED: int

class KeyReader:
    looks_back: bool
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
        before: int = 0,
    ) -> int: ...

def record_of(
    data: bytes, incarnation: int, segment: int, position: int, size: int
) -> tuple[int, int, bytes, int, int] | int: ...
def shared_by(
    data: bytes, incarnation: int, segment: int, position: int, shared: int
) -> bytes | None: ...
def value_in(properties: bytes, name: str, fields: bytes = b"") -> bytes | None: ...
def may_share(name: str) -> bool: ...

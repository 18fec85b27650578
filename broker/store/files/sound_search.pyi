from typing import Any

from broker.store.commit.quarantine import Quarantine

class SoundSearch:
    def __init__(self, content: bytes) -> None: ...

class RecordSearch(SoundSearch):
    def __init__(self, content: bytes, incarnation: int, segment: int, first: int = 0) -> None: ...

def damaged_stretch(
    path: str, incarnation: int, segment: int, position: int, limit: int, end: int
) -> tuple[int, bytes]: ...
def set_aside(
    quarantine: Quarantine,
    owner: tuple[str, str],
    path: str,
    incarnation: int,
    segment: int,
    position: int,
    limit: int,
    end: int,
) -> tuple[int, bytes, dict[str, Any] | None]: ...

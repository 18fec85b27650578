from collections.abc import Callable

from broker.store.commit.contracts import Dirty
from broker.store.commit.persister import Persister

class Segments(Dirty):
    keep: bool
    def __init__(
        self,
        persister: Persister,
        parent: str,
        incarnation: int,
        durable: bool,
        touch: Callable[[], object],
    ) -> None: ...
    @property
    def directory(self) -> str: ...
    @property
    def incarnation(self) -> int: ...
    @property
    def durable(self) -> bool: ...
    @property
    def deleted(self) -> bool: ...
    @property
    def segments(self) -> int: ...
    @property
    def disk_bytes(self) -> int: ...

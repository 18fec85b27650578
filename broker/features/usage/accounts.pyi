from collections.abc import Callable, Mapping
from typing import Any

from broker.kernel.reached import Reached

_Key = tuple[str, str, str, str]

QUEUE: tuple[str, ...]
CONNECTION: tuple[str, ...]
EXCHANGE: tuple[str, ...]

def key_of(connection: Any) -> _Key: ...
def identity(key: _Key) -> dict[str, str]: ...

class Sum:
    def add(self, counts: Mapping[str, int]) -> None: ...
    def columns(self) -> dict[str, Any]: ...

class Round:
    def __init__(
        self,
        sums: dict[_Key, Sum],
        sum_of: Callable[[dict[_Key, Sum], _Key], Sum],
        now: int,
        stands: bool = False,
        always: bool = False,
    ) -> None: ...

class Accounts:
    head: dict[str, Any]
    def __len__(self) -> int: ...
    def begin(self, queue: Any, now: int) -> None: ...
    def queues(
        self,
        queues: list[Any],
        start: int,
        ended: Reached,
        since: int,
        now: int,
        stands: bool,
        lines: list[dict[str, Any]],
    ) -> int: ...
    def queue(
        self, queue: Any, since: int, now: int, stands: bool, ends: bool
    ) -> dict[str, Any] | None: ...
    def exchange(
        self, vhost: str, exchange: Any, since: int, now: int, ends: bool
    ) -> dict[str, Any] | None: ...
    def connections(
        self,
        connections: list[Any],
        start: int,
        ended: Reached,
        round: Round,
        lines: list[dict[str, Any]],
    ) -> int: ...
    def connection(self, connection: Any, round: Round, ends: bool) -> dict[str, Any] | None: ...

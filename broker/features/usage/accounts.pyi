from collections.abc import Mapping
from typing import Any

from broker.kernel.reached import Reached

QUEUE: tuple[str, ...]
CONNECTION: tuple[str, ...]
EXCHANGE: tuple[str, ...]

class Sum:
    def add(self, counts: Mapping[str, int]) -> None: ...
    def columns(self) -> dict[str, Any]: ...

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
    def connection(
        self,
        connection: Any,
        total: Sum,
        identity: dict[str, str],
        now: int,
        stands: bool,
        always: bool,
        ends: bool,
    ) -> dict[str, Any] | None: ...

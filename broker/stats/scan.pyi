from collections.abc import Collection
from typing import Any

from broker.stats.gauge import Gauge

class Sums:
    consumers: int
    looked: int
    changed: int
    @property
    def held(self) -> tuple[float, float, float]: ...
    def has_risen(self) -> bool: ...
    def rises(self, kind: str, wanted: Collection[str]) -> dict[str, float]: ...

def scan(
    kind: str,
    things: list[Any],
    start: int,
    at: int,
    before: int,
    sums: Sums,
    lively: list[Any] | None = None,
    touched: list[Any] | None = None,
) -> int: ...
def scan_connections(
    connections: list[Any],
    start: int,
    vhost: Any,
    at: int,
    before: int,
    sums: Sums,
    of_channels: Sums,
) -> tuple[int, int]: ...
def watch(kind: str, thing: Any, at: int, sums: Sums) -> Gauge: ...
def finish(kind: str, thing: Any, sums: Sums) -> None: ...

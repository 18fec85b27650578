from typing import Any

from broker.stats.gauge import Gauge

NEAR_LIMIT: float
GROWTH_MIN: float

def of_queue(queue: Any, gauge: Gauge | None, now: int, stuck_after: float) -> str: ...
def words(queues: list[Any], start: int, stop: int, now: int, stuck_after: float) -> list[str]: ...
def limit_share(queue: Any) -> float | None: ...

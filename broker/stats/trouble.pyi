from typing import Any

from broker.stats.gauge import Gauge

NEAR_LIMIT: float
GROWTH_MIN: float

def of_queue(queue: Any, gauge: Gauge | None, now: int, stuck_after: float) -> str: ...
def of_consumer(consumer: Any, gauge: Gauge | None, now: int, stuck_after: float) -> str: ...
def having_word(
    queues: list[Any],
    wanted: dict[str, int],
    start: int,
    stop: int,
    now: int,
    stuck_after: float,
    keys: list[float],
) -> list[Any]: ...
def limit_share(queue: Any) -> float | None: ...

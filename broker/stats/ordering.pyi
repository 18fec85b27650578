from array import array
from collections.abc import Callable
from typing import Any

from broker.stats.gauge import Gauge

FIGURES: frozenset[str]

def figures(queues: list[Any], field: str, start: int, stop: int, found: array[float]) -> None: ...
def words(
    queues: list[Any],
    start: int,
    stop: int,
    now: int,
    stuck_after: float,
    judge: Callable[[Any, Gauge | None, int, float], str],
) -> list[str]: ...
def by_trouble(
    queues: list[Any],
    found_words: list[Any],
    ranks: dict[str, int],
    start: int,
    stop: int,
    found: array[float],
) -> None: ...
def first_places(keys: array[float], wanted: int, reverse: bool = False) -> list[int]: ...

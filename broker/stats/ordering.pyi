from array import array
from typing import Any

FIGURES: frozenset[str]

def figures(queues: list[Any], field: str, start: int, stop: int, found: array[float]) -> None: ...
def by_trouble(
    queues: list[Any],
    found_words: list[Any],
    ranks: dict[str, int],
    start: int,
    stop: int,
    found: array[float],
) -> None: ...
def first_places(keys: array[float], wanted: int, reverse: bool = False) -> list[int]: ...

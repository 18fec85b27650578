from array import array
from collections.abc import Callable
from typing import Any

FIGURES: frozenset[str]
CHANNEL_FIGURES: frozenset[str]

def figures(queues: list[Any], field: str, start: int, stop: int, found: array[float]) -> None: ...
def channel_figures(
    channels: list[Any], field: str, start: int, stop: int, found: array[float]
) -> None: ...
def numbers(
    things: list[Any], read: Callable[[Any], Any], start: int, stop: int, found: array[float]
) -> bool: ...
def texts(things: list[Any], read: Callable[[Any], Any], start: int, stop: int) -> list[str]: ...
def places_before(
    keys: list[Any], last: Any, start: int, stop: int, reverse: bool
) -> list[int]: ...
def by_trouble(
    queues: list[Any],
    ranks: dict[str, int],
    now: int,
    stuck_after: float,
    start: int,
    stop: int,
    found: array[float],
) -> None: ...
def consumers_by_trouble(
    consumers: list[Any],
    ranks: dict[str, int],
    now: int,
    stuck_after: float,
    start: int,
    stop: int,
    found: array[float],
) -> None: ...
def consumer_timeouts(
    consumers: list[Any],
    usual: float,
    other: Callable[[Any], int],
    start: int,
    stop: int,
    found: array[float],
) -> None: ...
def first_places(keys: array[float], wanted: int, reverse: bool = False) -> array[int]: ...

from collections.abc import Callable
from typing import Any

from broker.features.transfer.rules import Rules
from broker.queues.classic import ClassicQueue
from broker.store.log.walk import Walk

DONE: int
MORE: int
READING: int
FULL: int
UNROUTED: int
AT_BOUND: int
IN_FLIGHT: int
LOST: int
PACED: int

class HandOver:
    allowed: int
    def __init__(
        self,
        route: Callable[[bytes, bytes], tuple[tuple[Any, ...], bytes | str | None]],
        same_bodies: bool,
        handed: int = 0,
        handed_bytes: int = 0,
    ) -> None: ...
    @property
    def targets(self) -> tuple[Any, ...]: ...
    @property
    def refusal(self) -> str: ...
    @property
    def handed(self) -> int: ...
    @property
    def handed_bytes(self) -> int: ...
    def give_row(
        self,
        exchange: bytes,
        routing_key: bytes,
        properties: bytes,
        body: bytes,
        timestamp: int,
        persistent: bool,
        doubtful: bool,
    ) -> int: ...

class Mover:
    def __init__(
        self,
        source: ClassicQueue,
        walk: Walk,
        rules: Rules,
        hand_over: HandOver,
        *,
        copies: bool,
        most: int = 0,
    ) -> None: ...
    def resume(self, looked: int, matched: int, doubtful: tuple[int, int] | None) -> None: ...
    @property
    def walk(self) -> Walk: ...
    @property
    def looked(self) -> int: ...
    @property
    def matched(self) -> int: ...
    @property
    def in_flight(self) -> int: ...
    def may_go_to(self) -> tuple[int, int]: ...
    def set_bound(self, level: int, at: int) -> None: ...
    def go_on(self, nanoseconds: int) -> int: ...
    def settled(self, leaving: Any) -> None: ...
    def end(self) -> None: ...

class Preview:
    def __init__(self, source: ClassicQueue, rules: Rules, most: int) -> None: ...
    @property
    def looked(self) -> int: ...
    @property
    def matched(self) -> int: ...
    def go_on(self, nanoseconds: int) -> int: ...

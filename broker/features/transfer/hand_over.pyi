from typing import Any

from broker.kernel.large_body import LargeBody

DONE: int
MORE: int
READING: int
FULL: int
UNROUTED: int
AT_BOUND: int
IN_FLIGHT: int
LOST: int
PACED: int
PART: int

class HandOver:
    allowed: int
    def __init__(
        self,
        route: Any,
        same_bodies: bool,
        handed: int = 0,
        handed_bytes: int = 0,
        bodies: Any = None,
    ) -> None: ...
    is_kept: bool
    @property
    def is_wide(self) -> bool: ...
    @property
    def is_halfway(self) -> bool: ...
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
        body: bytes | LargeBody,
        timestamp: int,
        persistent: bool,
        doubtful: bool,
    ) -> int: ...
    def give_more_rows(self, nanoseconds: int) -> int: ...
    def forget(self) -> int: ...

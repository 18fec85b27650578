from collections.abc import Callable
from typing import Any

from broker.kernel.contracts import Exchange

EVENT_REPLAYED: int
EVENT_DELETED: int

class Recording:
    def keep(
        self,
        exchange: Exchange | None,
        name: bytes,
        routing_key: bytes,
        properties: bytes,
        body: bytes,
        targets: tuple[Any, ...],
        answer: int,
    ) -> int: ...

class Recorder:
    on: bool
    begin: Callable[[str, str], Recording]

NOT_RECORDING: Recorder

class Observer: ...

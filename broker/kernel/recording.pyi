from collections.abc import Callable
from typing import Any

from broker.kernel.contracts import Exchange

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

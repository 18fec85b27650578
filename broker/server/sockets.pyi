from collections.abc import Callable
from typing import Any

from broker.kernel.turn import Turn
from broker.server.rests import Rests
from broker.store.commit.persister import Persister
from broker.wire.frame_parser import FrameParser

class Receiver:
    def __init__(self, buffer: memoryview, protocol: Any, rests: Rests) -> None: ...

class Sockets:
    due: bool
    @property
    def epoll(self) -> int: ...
    walk_over_young: Callable[[], object] | None
    walk_every_ns: int
    looking: Callable[[bool], object] | None
    def __init__(
        self,
        turn: Turn,
        persister: Persister,
        buffer: memoryview,
        under_pressure: Callable[[Any, int], object],
    ) -> None: ...
    def open(self, epoll: int) -> None: ...
    def watch(
        self,
        fd: int,
        handler: FrameParser | Receiver | Callable[[], object],
        owner: Any = None,
    ) -> None: ...
    def forget(self, fd: int) -> None: ...
    def wait(self, timeout: float | None) -> list[tuple[int, int]]: ...

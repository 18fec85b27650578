from collections.abc import Callable
from typing import Any

from broker.kernel.contracts import Queue
from broker.kernel.recording import Observer
from broker.queues.counters import QueueCounters
from broker.settings.bounds import Bounds
from broker.store.bodies.store import BodyStore

class DeclaredQueue(Queue):
    bodies: BodyStore | None
    owner: Any
    declared_by: str | None
    dead_letter: Callable[
        [Any, str, bytes, bytes, bytes],
        tuple[tuple[Queue, ...], bytes, bytes, bytes] | None,
    ]
    later: Callable[[float, Callable[[], None]], Any]
    used_at: int
    unused: Callable[[Any], object] | None
    policy: Any
    observer: Observer | None
    gauge: Any
    is_timed: bool
    def __init__(
        self,
        vhost_name: str,
        name: str,
        incarnation: int,
        *,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: dict[str, Any] | None,
        owner: Any,
        bounds: Bounds,
    ) -> None: ...
    @property
    def bounds(self) -> Bounds: ...
    @property
    def name(self) -> str: ...
    @property
    def vhost_name(self) -> str: ...
    @property
    def incarnation(self) -> int: ...
    @property
    def exclusive(self) -> bool: ...
    @property
    def auto_delete(self) -> bool: ...
    def take_most(self) -> int: ...
    @property
    def arguments(self) -> dict[str, Any]: ...
    @property
    def deleted(self) -> bool: ...
    @property
    def counts(self) -> QueueCounters: ...
    @property
    def policy_name(self) -> str | None: ...
    @property
    def operator_policy_name(self) -> str | None: ...
    @property
    def policy_definition(self) -> dict[str, Any] | None: ...

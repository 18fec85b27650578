from collections.abc import Callable

from broker.store.bodies.store import BodyStore
from broker.store.log.contracts import MessageStore
from broker.store.log.segments import QueueDirectory

class PriorityStore(MessageStore):
    def __init__(
        self,
        folder: QueueDirectory,
        durable: bool,
        touch: Callable[[], object],
        max_priority: int,
        bodies: BodyStore | None = None,
    ) -> None: ...

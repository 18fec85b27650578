from collections.abc import Callable

from broker.store.bodies.store import BodyStore
from broker.store.log.contracts import MessageStore
from broker.store.log.segments import QueueDirectory

class QueueStore(MessageStore):
    def __init__(
        self,
        folder: QueueDirectory,
        durable: bool,
        touch: Callable[[], object],
        bodies: BodyStore | None = None,
        first_number: int = 1,
        numbers_behind: int = 0xFFFFFFFE,
    ) -> None: ...

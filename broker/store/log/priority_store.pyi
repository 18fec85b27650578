from collections.abc import Callable

from broker.store.bodies.store import BodyStore
from broker.store.commit.persister import Persister
from broker.store.log.queue_store import QueueStore

class Level(QueueStore):
    pass

class PriorityStore(QueueStore):
    def __init__(
        self,
        persister: Persister,
        parent: str,
        incarnation: int,
        durable: bool,
        touch: Callable[[], object],
        max_priority: int,
        bodies: BodyStore | None = None,
    ) -> None: ...

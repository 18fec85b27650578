from broker.store.bodies import BodyStore
from broker.store.segments import Segments

class QueueBodies(Segments):
    @property
    def bodies(self) -> BodyStore | None: ...
    @property
    def references(self) -> int: ...

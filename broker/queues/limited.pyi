from collections.abc import Mapping
from typing import Any

from broker.queues.dead_lettering import DeadLetteringQueue

class LimitedQueue(DeadLetteringQueue):
    def reconfigure(self, effective: Mapping[str, Any]) -> None: ...

from typing import final

from broker.store.commit.persister import Persister

@final
class QueueDirectory:
    def __init__(self, persister: Persister, parent: str, incarnation: int) -> None: ...
    @property
    def incarnation(self) -> int: ...
    @property
    def path(self) -> str: ...

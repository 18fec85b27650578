from collections.abc import Callable

from broker.kernel.contracts import Consumer, Queue

PSEUDO_NAME: str

def dropped_replies() -> int: ...

class ReplyQueue(Queue):
    consumer: Consumer | None
    def __init__(
        self,
        name: str,
        came: Callable[[], object],
        gone: Callable[[ReplyQueue], object],
    ) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def deleted(self) -> bool: ...
    def add_consumer(self, consumer: Consumer) -> None: ...
    def remove_consumer(self, consumer: Consumer) -> None: ...

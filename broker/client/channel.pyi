from typing import Any

from _typeshed import ReadableBuffer

from broker.client.batch import Batch
from broker.client.errors import ClientError
from broker.client.measuring import Histogram
from broker.client.message import Message
from broker.client.unconfirmed import Unconfirmed

class ConsumerCore:
    owner: Any
    tag: bytes
    batch: Batch
    def __init__(self, tag: bytes, owner: Any = None) -> None: ...

class ChannelCore:
    number: int
    is_open: bool
    closed: ClientError | None
    unconfirmed: Unconfirmed | None
    returns: Batch
    consumers: list[ConsumerCore]
    def request(self, name: str, token: Any, **arguments: Any) -> None: ...
    def send(self, name: str, **arguments: Any) -> None: ...
    def check(self) -> None: ...
    def select_confirms(self, histogram: Histogram | None = None) -> None: ...
    def add_consumer(self, tag: bytes, owner: Any = None) -> ConsumerCore: ...
    def remove_consumer(self, consumer: ConsumerCore) -> None: ...
    def publish(
        self,
        exchange: bytes,
        routing_key: bytes,
        properties: bytes,
        body: ReadableBuffer,
        mandatory: bool = False,
    ) -> int: ...
    def republish(
        self,
        batch: Batch,
        first: int,
        last: int,
        exchange: bytes | None = None,
        routing_key: bytes | None = None,
        mandatory: bool = False,
    ) -> int: ...
    def ack(self, tag: int, multiple: bool = False) -> None: ...
    def nack(self, tag: int, multiple: bool = False, requeue: bool = True) -> None: ...
    def take_returns(self) -> list[tuple[Message, str]]: ...
    def close(self, token: Any, code: int = 200, text: str = "closed") -> None: ...

def replies(request: str, reply: str) -> bool: ...

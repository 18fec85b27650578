from collections.abc import Callable

from broker.client.batch import Batch
from broker.client.channel import ChannelCore
from broker.client.message import Message

class Flight:
    source: ChannelCore
    target: ChannelCore
    rewrite_all: bool
    with_names: bool
    checks_headers: bool
    checks_plain: bool
    holds_acks: bool
    repeat: Callable[[bytes], bytes] | None
    marks: bool
    acked: int
    acks: bool
    on_refused: str
    on_unfit: str
    unfit_why: str
    ack_most: int
    limit: int
    taken: int
    moved: int
    moved_bytes: int
    refused: int
    unfit: int
    dropped: int
    parted_count: int
    marked: int
    strays: int
    refusals: list[Message]
    def __init__(
        self,
        source: ChannelCore,
        target: ChannelCore,
        *,
        exchange: bytes | None = None,
        routing_key: bytes | None = None,
        rewrite: Callable[..., bytes | None] | None = None,
        mandatory: bool = False,
    ) -> None: ...
    @property
    def bytes(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def held_count(self) -> int: ...
    @property
    def waiting_count(self) -> int: ...
    @property
    def is_over(self) -> bool: ...
    def take(self, batch: Batch, go: bool) -> None: ...
    def go(self) -> None: ...
    def again(self) -> None: ...
    def nacked(self, numbers: list[int]) -> None: ...
    def returned(self, message: Message) -> bool: ...
    def collect(self) -> None: ...
    def parted(self, message: Message, by_source: bool) -> None: ...
    def flush_acks(self) -> None: ...
    def ack_all(self) -> None: ...

from broker.client.batch import Batch
from broker.client.channel import ChannelCore
from broker.client.measuring import Histogram

def filler(size: int) -> bytes: ...

class Stamper:
    count: int
    def __init__(
        self,
        channel: ChannelCore,
        exchange: bytes,
        routing_key: bytes,
        properties: bytes,
        size: int,
        *,
        run: int = 0,
        mandatory: bool = False,
        body: bytes | None = None,
    ) -> None: ...
    def publish(self, count: int) -> None: ...

class StampReader:
    count: int
    body_bytes: int
    redelivered: int
    wrong: int
    unacked: int
    last_tag: int
    def __init__(
        self,
        histogram: Histogram | None = None,
        *,
        run: int = 0,
        ack_every: int = 0,
        verify: bool = False,
    ) -> None: ...
    def read(self, channel: ChannelCore, batch: Batch) -> None: ...
    def flush(self, channel: ChannelCore) -> None: ...

from broker.contracts import Queue

class Sink(Queue):
    def __init__(self, durable: bool) -> None: ...
    def put(
        self,
        exchange: bytes,
        routing_key: bytes,
        properties: bytes,
        body: bytes,
        persistent: bool,
        reference: bytes | None = None,
    ) -> int: ...

from broker.kernel.contracts import Queue

class DiscardingQueue(Queue):
    def __init__(self, durable: bool) -> None: ...

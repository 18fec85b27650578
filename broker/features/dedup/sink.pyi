from broker.kernel.contracts import Queue

class Sink(Queue):
    def __init__(self, durable: bool) -> None: ...

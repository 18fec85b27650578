from broker.queues.declared import DeclaredQueue
from broker.wire.connection import Connection

class CountedQueue(DeclaredQueue):
    counted: dict[str, int]
    sampled: dict[str, int]
    messages: int
    message_bytes: int
    consumer_count: int

class CountedConnection(Connection):
    counted: dict[str, int]

from broker.queues.declared import DeclaredQueue
from broker.wire.frame_parser import FrameParser

class CountedQueue(DeclaredQueue):
    counted: dict[str, int]
    sampled: dict[str, int]
    messages: int
    message_bytes: int
    consumer_count: int

class CountedConnection(FrameParser):
    counted: dict[str, int]

"""The queue type `stream`, as `broker.queues.types` takes it in."""

from __future__ import annotations

from broker.queues.stream import StreamQueue
from broker.queues.stream_arguments import CARRIED_OUT, check_stream

TYPE = (StreamQueue, check_stream, CARRIED_OUT.__contains__)

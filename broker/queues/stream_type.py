"""The queue type `stream`, as `broker.queues.types` takes it in."""

from __future__ import annotations

from broker.queues.stream import StreamQueue
from broker.queues.stream_arguments import check_stream

TYPE = (StreamQueue, check_stream)

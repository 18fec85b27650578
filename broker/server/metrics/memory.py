"""What the memory is used for, as far as it is known: the page `/metrics/memory-breakdown`, and the
same figures under the names of RabbitMQ's API."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from broker.kernel.through import Through
from broker.server.control.node_verbs import message_store_of
from broker.server.metrics.lines import metric

if TYPE_CHECKING:
    from broker.server.app import Broker


class Part(NamedTuple):
    """A use of memory: its name in metrics, and what it is."""

    metric: str
    text: str


PARTS = {
    "queue_procs": Part(
        "classic_queue_erlang_process", "Classic queues with their messages in memory"
    ),
    "quorum_queue_procs": Part(
        "quorum_queue_erlang_process", "Quorum queues with their messages in memory"
    ),
    "connection_writers": Part("client_connection_writer", "What waits to be sent to clients"),
    "msg_index": Part("message_index", "Index of shared bodies"),
    "binary": Part("binary_heap", "Shared bodies that are not written yet"),
    "other_system": Part("other_system", "All other memory"),
}
"""By the name in the API; `other_system` is all of the process besides."""

_OF_TYPE = {"classic": "queue_procs", "quorum": "quorum_queue_procs"}


def memory_parts(broker: Broker) -> Iterator[dict[str, int]]:
    """Bytes by the names of `PARTS` at the end; empty ones in the steps before."""
    sums: Counter[str] = Counter()
    for vhost in list(broker.vhosts.values()):
        for queue in Through(vhost.queues.values()):
            if queue.type in _OF_TYPE:  # a stream has none of its own
                sums[_OF_TYPE[queue.type]] += queue.memory or 0
            yield {}
    for connection in Through(broker.connections.values()):
        sums["connection_writers"] += connection.output.send_pend
        yield {}
    bodies = message_store_of(broker)["msg_store"]
    sums["msg_index"] = bodies["index"]["memory"]
    sums["binary"] = bodies["in_flight_bytes"]
    sums["other_system"] = max(0, broker.watch.reading.mem_used - sums.total())
    yield {name: sums[name] for name in PARTS}


def memory_breakdown(broker: Broker) -> Iterator[str]:
    """The lines of the page."""
    for parts in memory_parts(broker):
        if not parts:
            yield ""
        for name, size in parts.items():
            part = PARTS[name]
            yield metric(f"memory_{part.metric}_bytes", "gauge", f"{part.text} in bytes", size)

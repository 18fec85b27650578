"""The page `/metrics/memory-breakdown`: what the memory is used for, as far as it is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from broker.kernel.through import Through
from broker.server.control.node_verbs import message_store_of
from broker.server.metrics.lines import metric

if TYPE_CHECKING:
    from broker.server.app import Broker

# RabbitMQ's metric, help, what is summed up.
_PARTS = (
    ("classic_queue_erlang_process", "Classic queues with their messages in memory", "classic"),
    ("quorum_queue_erlang_process", "Quorum queues with their messages in memory", "quorum"),
    ("client_connection_writer", "What waits to be sent to clients", "sending"),
    ("message_index", "Index of shared bodies", "index"),
    ("binary_heap", "Shared bodies that are not written yet", "bodies"),
)


def memory_breakdown(broker: Broker) -> Iterator[str]:
    """Bytes by use; `other_system` is all of the process besides."""
    sums: Counter[str] = Counter()
    for vhost in list(broker.vhosts.values()):
        for queue in Through(vhost.queues.values()):
            sums[queue.type] += queue.memory or 0  # a stream has none of its own
            yield ""
    for connection in Through(broker.connections.values()):
        sums["sending"] += connection.send_pend
        yield ""
    bodies = message_store_of(broker)["msg_store"]
    sums["index"] = bodies["index"]["memory"]
    sums["bodies"] = bodies["in_flight_bytes"]
    used = broker.watch.reading.mem_used
    for name, text, key in _PARTS:
        yield metric(f"memory_{name}_bytes", "gauge", f"{text} in bytes", sums[key])
    rest = max(0, used - sum(sums[key] for _, _, key in _PARTS))
    yield metric("memory_other_system_bytes", "gauge", "All other memory in bytes", rest)

"""Counters of everything by type of queue, and the sums that older dashboards ask for.

They are sums over what is there and what has ended (`broker.stats.ended`), both taken in the same
turn of the loop: a queue that goes while they are added up is not counted twice, nor left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from broker.kernel.through import Through
from broker.server.metrics.lines import head, line, metric
from broker.stats.counting import ChannelCounts, QueueCounts, count_queues
from broker.stats.gauges import DELIVERING

if TYPE_CHECKING:
    from broker.server.app import Broker

QUEUE_TYPES = {
    "classic": "rabbit_classic_queue",
    "quorum": "rabbit_quorum_queue",
    "stream": "rabbit_stream_queue",
}
REASONS = ("expired", "rejected", "maxlen", "delivery_limit")
_STRATEGIES = {"given_up": "disabled", "lettered": "at_least_once"}
"""RabbitMQ's words: a message without a dead-letter exchange is lost; a dead letter stays in its
queue until the queues behind the exchange have it on disk."""

_QUEUES_AT_ONCE = 500
_OBJECTS_HELD = 50_000
"""Up to this number, all that are there are looked at, also those that are deleted meanwhile: else
their counts would be missing once, as if the counters had begun anew. A list of more takes a long
turn to make."""
_CHANNELS_AT_ONCE = 200
"""Added up between two looks at the clock: some 0.05 ms."""

# Metric, help, counters of a queue.
_GLOBAL_QUEUES = (
    (
        "messages_delivered_consume_auto_ack_total",
        "Total number of messages delivered to consumers using basic.consume with automatic "
        "acknowledgment",
        ("deliver_no_ack",),
    ),
    (
        "messages_delivered_consume_manual_ack_total",
        "Total number of messages delivered to consumers using basic.consume with manual "
        "acknowledgment",
        ("deliver",),
    ),
    (
        "messages_delivered_get_auto_ack_total",
        "Total number of messages delivered to consumers using basic.get with automatic "
        "acknowledgment",
        ("get_no_ack",),
    ),
    (
        "messages_delivered_get_manual_ack_total",
        "Total number of messages delivered to consumers using basic.get with manual "
        "acknowledgment",
        ("get",),
    ),
    (
        "messages_get_empty_total",
        "Total number of times basic.get operations fetched no message",
        ("get_empty",),
    ),
    (
        "messages_redelivered_total",
        "Total number of messages redelivered to consumers",
        ("redeliver",),
    ),
    (
        "messages_acknowledged_total",
        "Total number of message acknowledgements received from consumers",
        ("ack",),
    ),
    (
        "messages_delivered_total",
        "Total number of messages delivered to consumers",
        DELIVERING,
    ),
)
# Older revisions of RabbitMQ's dashboards: metric, counter of the node's totals.
_CHANNELS = (
    ("messages_published_total", "publish"),
    ("messages_confirmed_total", "confirm"),
    ("messages_unroutable_returned_total", "return_unroutable"),
    ("messages_unroutable_dropped_total", "drop_unroutable"),
    ("messages_delivered_ack_total", "deliver"),
    ("messages_delivered_total", "deliver_no_ack"),
    ("messages_redelivered_total", "redeliver"),
    ("messages_acked_total", "ack"),
    ("get_ack_total", "get"),
    ("get_total", "get_no_ack"),
    ("get_empty_total", "get_empty"),
)


def by_type(broker: Broker, of_all: bool) -> Iterator[str]:
    """What queues count, with the label queue_type, and why messages left them; `of_all`: the sums
    that stand with other labels on the pages of single objects, too."""
    walks = [
        Through(queues if len(queues) > _OBJECTS_HELD else list(queues))
        for queues in (vhost.queues.values() for vhost in broker.vhosts.values())
    ]
    sums: dict[str, Counter[str]] = {
        name: Counter(broker.stats.ended.queues.get(name)) for name in QUEUE_TYPES
    }
    living: dict[str, QueueCounts] = {}
    for walk in walks:
        while some := walk.piece(_QUEUES_AT_ONCE):
            count_queues(some, 0, len(some), living)
            yield ""
    for kind, added_up in living.items():
        sums.setdefault(kind, Counter()).update(added_up.counts())
    for name, text, counters in _GLOBAL_QUEUES:
        yield head(f"global_{name}", "counter", text)
        for kind, counts in sums.items():
            labels = {"protocol": "amqp091", "queue_type": QUEUE_TYPES.get(kind, kind)}
            yield line(f"global_{name}", sum(counts[one] for one in counters), labels)
    for reason in REASONS:
        name = f"global_messages_dead_lettered_{reason}_total"
        yield head(name, "counter", f"Total number of messages dead-lettered due to {reason}")
        for kind, counts in sums.items():
            if kind == "stream":
                continue
            for way, strategy in _STRATEGIES.items():
                labels = {"queue_type": QUEUE_TYPES[kind], "dead_letter_strategy": strategy}
                yield line(name, counts[f"{way}.{reason}"], labels)
    yield head(
        "global_messages_refused_total",
        "counter",
        "Total number of publishes that a full queue refused",
    )
    for kind, counts in sums.items():
        labels = {"queue_type": QUEUE_TYPES.get(kind, kind)}
        yield line("global_messages_refused_total", counts["refused"], labels)
    if of_all:
        yield metric(
            "queue_messages_published_total",
            "counter",
            "Total number of messages published to queues",
            sum(counts["publish"] for counts in sums.values()),
        )


def channel_sums(broker: Broker, of_all: bool) -> Iterator[str]:
    """Sums over channels: who publishes, what waits, what was nacked. `of_all` as above."""
    refused = broker.stats.ended.refused
    connections = list(broker.connections.values())
    held = sum(len(each.channels) for each in connections) <= _OBJECTS_HELD
    lists = (list(each.channels.values()) for each in connections)
    sums = ChannelCounts()
    for channels in [list(chain.from_iterable(lists))] if held else lists:
        for start in range(0, len(channels), _CHANNELS_AT_ONCE):
            sums.add(channels, start, start + _CHANNELS_AT_ONCE)
            yield ""
    refused += sums.refused
    # Labelled, these stand on every page.
    text = "Publishers currently connected"
    yield metric("global_publishers", "gauge", text, sums.publishers, {"protocol": "amqp091"})
    text = "Total number of publishes that were nacked"
    yield metric("global_messages_nacked_total", "counter", text, refused, {"protocol": "amqp091"})
    if not of_all:
        return
    for name, text, value in (
        ("messages_unacked", "Delivered but not yet acknowledged messages", sums.unacknowledged),
        ("messages_unconfirmed", "Published but not yet confirmed messages", sums.unconfirmed),
        (
            "messages_uncommitted",
            "Messages received in a transaction but not yet committed",
            sums.uncommitted,
        ),
        (
            "acks_uncommitted",
            "Message acknowledgements in a transaction not yet committed",
            sums.acks_uncommitted,
        ),
        ("consumers", "Consumers on a channel", broker.stats.node.levels["consumers"]),
    ):
        yield metric(f"channel_{name}", "gauge", text, value)
    counters = broker.stats.node.counters
    for name, counter in _CHANNELS:
        text = f"Messages counted as {counter} on all channels"
        yield metric(f"channel_{name}", "counter", text, counters[counter])

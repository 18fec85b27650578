"""What the metrics say of the storage: segments of queues, shared bodies and their index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from broker.server.control.node_verbs import message_store_of
from broker.server.metrics.lines import head, line, metric

if TYPE_CHECKING:
    from broker.server.app import Broker

# Metric, type, help, key of the node's figures.
_OPERATIONS = (
    (
        "msg_store_read_total",
        "Total number of Message Store read operations",
        "msg_store_read_count",
    ),
    (
        "msg_store_write_total",
        "Total number of Message Store write operations",
        "msg_store_write_count",
    ),
    (
        "queue_index_read_ops_total",
        "Total number of Queue Index read operations",
        "queue_index_read_count",
    ),
    (
        "queue_index_write_ops_total",
        "Total number of Queue Index write operations",
        "queue_index_write_count",
    ),
)
# Metric, type, help, key of `msg_store`.
_BODIES = (
    ("files", "gauge", "Files of shared bodies", "files"),
    ("bytes", "gauge", "Bytes of the files of shared bodies", "bytes"),
    ("live_bytes", "gauge", "Bytes of shared bodies that a message refers to", "live_bytes"),
    ("references", "gauge", "Messages that refer to a shared body", "references"),
    ("in_flight", "gauge", "Shared bodies in memory that are not written yet", "in_flight"),
    (
        "in_flight_bytes",
        "gauge",
        "Bytes of shared bodies that wait to be written",
        "in_flight_bytes",
    ),
    ("shared_total", "counter", "Bodies published to several queues and shared", "shared"),
    ("shared_bytes_total", "counter", "Bytes of those bodies, each counted once", "shared_bytes"),
    ("written_bytes_total", "counter", "Bytes of shared bodies written", "written_bytes"),
    ("buffer_writes_total", "counter", "Writes that shared bodies went out in", "buffer_writes"),
    (
        "cancelled_writes_total",
        "counter",
        "Shared bodies that were settled everywhere before they were written",
        "cancelled_writes",
    ),
    ("cancelled_bytes_total", "counter", "Bytes of those bodies", "cancelled_bytes"),
    (
        "in_flight_hits_total",
        "counter",
        "Readings of a shared body that was still in memory",
        "in_flight_hits",
    ),
    (
        "in_flight_misses_total",
        "counter",
        "Readings of a shared body that had to come from its file",
        "in_flight_misses",
    ),
    ("cache_hits_total", "counter", "Of those, answered from the page cache", "cache_hits"),
    ("cache_misses_total", "counter", "Of those, read by the reader thread", "cache_misses"),
    ("dangling_total", "counter", "References to a body that is not there", "dangling"),
    ("gc_runs_total", "counter", "Collections of body files", "gc_runs"),
    ("gc_copied_bytes_total", "counter", "Bytes that collections copied", "gc_copied_bytes"),
    (
        "gc_reclaimed_bytes_total",
        "counter",
        "Bytes that collections gave back",
        "gc_reclaimed_bytes",
    ),
)
_INDEX = (
    ("index_entries", "gauge", "Shared bodies in the location index", "entries"),
    ("index_memory_bytes", "gauge", "Memory of the location index", "memory"),
    ("index_lookups_total", "counter", "Questions that the index asked its database", "lookups"),
)
_BLOOM = (
    ("bloom_bytes", "gauge", "Memory of the Bloom filters of the index", "bytes"),
    ("bloom_rotations_total", "counter", "Rotations of those filters", "rotations"),
    (
        "bloom_false_positives_total",
        "counter",
        "Questions that the filters let through in vain",
        "false_positives",
    ),
)


# Metric, help, key of the figures of a state.
_KEY_INDEX = (
    ("files", "Files of the random index of streams", "files"),
    ("items", "Keys of messages in those files", "items"),
    ("bytes", "Bytes of those files on this disk", "bytes"),
)

_TIERS = (
    ("objects", "gauge", "Objects in the object store", "objects"),
    ("objects_to_delete", "gauge", "Of them, those that will be deleted", "objects_to_delete"),
    ("pending_segments", "gauge", "Sealed segments that wait for their upload", "pending_segments"),
    ("pending_bytes", "gauge", "Bytes of these segments", "pending_bytes"),
    ("uploaded_segments_total", "counter", "Segments put into the store", "uploaded_segments"),
    ("uploaded_bytes_total", "counter", "Bytes of these segments", "uploaded_bytes"),
    ("upload_failures_total", "counter", "Uploads that failed; tried again", "upload_failures"),
    ("deleted_objects_total", "counter", "Objects deleted", "deleted_objects"),
    ("fetched_blocks_total", "counter", "Blocks fetched for readers", "fetched_blocks"),
    ("fetch_failures_total", "counter", "Fetches that failed; tried again", "fetch_failures"),
    ("cache_bytes", "gauge", "Bytes of copies of segments on this disk", "cache_bytes"),
    ("cache_hits_total", "counter", "Reads that found their bytes here", "cache_hits"),
    ("cache_misses_total", "counter", "Reads that waited for the store", "cache_misses"),
    ("waiting_readers", "gauge", "Readers that wait for the store", "waiting_readers"),
    ("cancelled_readers_total", "counter", "Readers notified that they wait", "cancelled_readers"),
    ("store_requests_total", "counter", "Requests to the object store", "store_requests"),
    ("store_sent_bytes_total", "counter", "Bytes of objects sent", "store_bytes_sent"),
    ("store_received_bytes_total", "counter", "Bytes of objects received", "store_bytes_received"),
)


def store_operations(figures: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """RabbitMQ's counters of its message store and queue index; `figures` is the node's row."""
    for name, text, key in _OPERATIONS:
        yield metric(f"{prefix}{name}", "counter", text, figures[key])


def storage_metrics(broker: Broker) -> Iterator[str]:
    """RabbitMQ's counters of storage, then our own under `msg_store_` and `tiers_`."""
    figures = message_store_of(broker)
    yield from store_operations(figures)
    bodies = figures["msg_store"]
    index = bodies["index"]
    yield from _metrics(_BODIES, bodies)
    yield from _metrics(_INDEX, index)
    if index["bloom"] is not None:
        yield from _metrics(_BLOOM, index["bloom"])
        text = "is 1 while a Bloom filter of the index rotates"
        yield metric("msg_store_bloom_rotating", "gauge", text, index["bloom"]["state"] != "clean")
    yield from _stream_indexes(broker)
    yield from _transfers(broker)
    yield from _histories(broker)
    yield from _tier_metrics(broker)


def _tier_metrics(broker: Broker) -> Iterator[str]:
    """Segments of streams in the object store, under `tiers_`; nothing where no stream has any."""
    if broker.tiers is None or not broker.tiers.is_used:
        return
    figures = broker.tiers.figures()
    yield metric(
        "tiers_store_up", "gauge", "is 1 if the object store takes segments", broker.tiers.may_write
    )
    for name, kind, text, key in _TIERS:
        yield metric(f"tiers_{name}", kind, text, figures[key])


def _metrics(rows: tuple[tuple[str, str, str, str], ...], figures: dict[str, Any]) -> Iterator[str]:
    for name, kind, text, key in rows:
        yield metric(f"msg_store_{name}", kind, text, figures[key])


def _stream_indexes(broker: Broker) -> Iterator[str]:
    """The files of the random index of streams by state, of all virtual hosts together."""
    if broker.stream_indexes is None:
        return
    indexes = [index for _, index in broker.stream_indexes.all()]
    for name, text, key in _KEY_INDEX:
        sums: dict[str, int] = {}
        for index in indexes:
            for state, row in index.figures.items():
                sums[state] = sums.get(state, 0) + row[key]
        yield head(f"stream_index_{name}", "gauge", text)
        for state, value in sums.items():
            yield line(f"stream_index_{name}", value, {"state": state})


def _transfers(broker: Broker) -> Iterator[str]:
    """Transfers by state, and what all of them did since the start, by mode."""
    if broker.transfers is None:
        return
    yield head("transfers", "gauge", "Moves, copies and replays that are listed, by state")
    for state, count in broker.transfers.by_state().items():
        yield line("transfers", count, {"state": state})
    figures = broker.transfers.figures
    for name, text, counts in (
        ("messages", "Messages handed over by transfers", figures.messages),
        ("bytes", "Bytes of bodies handed over by transfers", figures.bytes),
    ):
        yield head(f"transfer_{name}_total", "counter", text)
        for mode, count in counts.items():
            yield line(f"transfer_{name}_total", count, {"mode": mode})
    text = "Offers of transfers that a target did not take"
    yield metric("transfer_refused_total", "counter", text, figures.refused)


def _histories(broker: Broker) -> Iterator[str]:
    """What was recorded in the histories of all virtual hosts since the start."""
    if broker.histories is None:
        return
    records, size, events, lost = broker.histories.counts()
    text = "Messages recorded in the histories of virtual hosts"
    yield metric("history_records_total", "counter", text, records)
    text = "Bytes of bodies recorded in the histories of virtual hosts"
    yield metric("history_record_bytes_total", "counter", text, size)
    text = "Events of messages recorded in the histories of virtual hosts"
    yield metric("history_events_total", "counter", text, events)
    text = "Events that were given up because too much waited to be written"
    yield metric("history_events_lost_total", "counter", text, lost)

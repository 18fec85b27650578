# cython: language_level=3
"""What the usage feed takes of a channel: its counters as a row."""

from libc.stdint cimport uint64_t

from broker.wire.channel cimport Channel
from broker.wire.deliveries cimport Deliveries


cdef void add_use(Channel channel, uint64_t* row) noexcept:
    """Adds what the usage feed takes of a channel to a row of its connection."""
    cdef Deliveries deliveries = channel.deliveries
    row[USE_PUBLISH] += channel.published
    row[USE_PUBLISH_BYTES] += channel.published_bytes
    if channel.confirms is not None:
        row[USE_CONFIRM] += channel.confirms.acked
    row[USE_ROUTED] += channel.published - channel.returned - channel.dropped - channel.unrouted
    row[USE_ROUTED_BYTES] += (
        channel.published_bytes - channel.returned_bytes - channel.dropped_bytes
        - channel.unrouted_bytes)
    row[USE_RETURN_UNROUTABLE] += channel.returned
    row[USE_RETURN_UNROUTABLE_BYTES] += channel.returned_bytes
    row[USE_DROP_UNROUTABLE] += channel.dropped
    row[USE_DROP_UNROUTABLE_BYTES] += channel.dropped_bytes
    row[USE_REFUSED] += channel.refused
    row[USE_REFUSED_BYTES] += channel.refused_bytes
    row[USE_DELIVER] += deliveries.delivered
    row[USE_DELIVER_BYTES] += deliveries.delivered_bytes
    row[USE_DELIVER_NO_ACK] += deliveries.delivered_no_ack
    row[USE_DELIVER_NO_ACK_BYTES] += deliveries.delivered_no_ack_bytes
    row[USE_GET] += deliveries.got
    row[USE_GET_BYTES] += deliveries.got_bytes
    row[USE_GET_NO_ACK] += deliveries.got_no_ack
    row[USE_GET_NO_ACK_BYTES] += deliveries.got_no_ack_bytes
    row[USE_GET_EMPTY] += deliveries.got_empty
    row[USE_REDELIVER] += deliveries.redelivered
    row[USE_REDELIVER_BYTES] += deliveries.redelivered_bytes
    row[USE_ACK] += deliveries.acked
    row[USE_ACK_BYTES] += deliveries.acked_bytes
    row[USE_REJECT] += deliveries.rejected
    row[USE_REJECT_BYTES] += deliveries.rejected_bytes

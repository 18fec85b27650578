# cython: language_level=3
"""What the usage feed takes of a channel: its counters as a row."""

from libc.stdint cimport uint64_t

from broker.wire.channel cimport WireChannel


cdef void add_use(WireChannel channel, uint64_t* row) noexcept:
    """Adds what the usage feed takes of a channel to a row of its connection."""
    row[USE_PUBLISH] += channel.published
    row[USE_PUBLISH_BYTES] += channel.published_bytes
    row[USE_CONFIRM] += channel.confirmed
    row[USE_ROUTED] += channel.published - channel.returned - channel.dropped - channel.astray
    row[USE_ROUTED_BYTES] += (
        channel.published_bytes - channel.returned_bytes - channel.dropped_bytes
        - channel.astray_bytes)
    row[USE_RETURN_UNROUTABLE] += channel.returned
    row[USE_RETURN_UNROUTABLE_BYTES] += channel.returned_bytes
    row[USE_DROP_UNROUTABLE] += channel.dropped
    row[USE_DROP_UNROUTABLE_BYTES] += channel.dropped_bytes
    row[USE_REFUSED] += channel.not_taken
    row[USE_REFUSED_BYTES] += channel.not_taken_bytes
    row[USE_DELIVER] += channel.delivered
    row[USE_DELIVER_BYTES] += channel.delivered_bytes
    row[USE_DELIVER_NO_ACK] += channel.delivered_no_ack
    row[USE_DELIVER_NO_ACK_BYTES] += channel.delivered_no_ack_bytes
    row[USE_GET] += channel.got
    row[USE_GET_BYTES] += channel.got_bytes
    row[USE_GET_NO_ACK] += channel.got_no_ack
    row[USE_GET_NO_ACK_BYTES] += channel.got_no_ack_bytes
    row[USE_GET_EMPTY] += channel.got_empty
    row[USE_REDELIVER] += channel.redelivered
    row[USE_REDELIVER_BYTES] += channel.redelivered_bytes
    row[USE_ACK] += channel.acked
    row[USE_ACK_BYTES] += channel.acked_bytes
    row[USE_REJECT] += channel.rejected
    row[USE_REJECT_BYTES] += channel.rejected_bytes

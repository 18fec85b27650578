from libc.stdint cimport uint64_t

from broker.wire.channel cimport Channel


# What the usage feed takes of a connection, its channels added up, in the order of a row. The names
# of `broker.features.usage.records` are made of these.
cpdef enum:
    USE_PUBLISH, USE_PUBLISH_BYTES
    USE_CONFIRM
    USE_ROUTED, USE_ROUTED_BYTES
    USE_RETURN_UNROUTABLE, USE_RETURN_UNROUTABLE_BYTES
    USE_DROP_UNROUTABLE, USE_DROP_UNROUTABLE_BYTES
    USE_REFUSED, USE_REFUSED_BYTES
    USE_DELIVER, USE_DELIVER_BYTES
    USE_DELIVER_NO_ACK, USE_DELIVER_NO_ACK_BYTES
    USE_GET, USE_GET_BYTES
    USE_GET_NO_ACK, USE_GET_NO_ACK_BYTES
    USE_GET_EMPTY
    USE_REDELIVER, USE_REDELIVER_BYTES
    USE_ACK, USE_ACK_BYTES
    USE_REJECT, USE_REJECT_BYTES
    USE_RECV_OCT, USE_SEND_OCT, USE_RECV_CNT, USE_SEND_CNT


cdef enum:
    CHANNEL_USES = USE_REJECT_BYTES + 1
    CONNECTION_USES = USE_SEND_CNT + 1


cdef void add_use(Channel channel, uint64_t* row) noexcept

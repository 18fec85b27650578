from libc.stdint cimport uint16_t, uint64_t

from broker.store.files.record cimport SHARED_WITHIN
from broker.store.log.segments cimport Segment
from broker.store.streams.store cimport SharedHeaders, StreamStore


cdef inline bint refer(StreamStore store, SharedHeaders* shared, uint64_t length) noexcept:
    """Whether the next record of a stream may leave out the shared headers, if it is `length` bytes
    long at most; says in `back` how far back they stand."""
    cdef Segment* segment = store.segments.active
    shared.back = 0
    if (segment != NULL and shared.store == store.incarnation
            and shared.segment == segment.number
            and segment.length - shared.position <= SHARED_WITHIN
            and segment.length + length <= (
                store.own_segment_size or store.persister.segment_size)):
        shared.back = <uint16_t> (segment.length - shared.position)
    return shared.back != 0

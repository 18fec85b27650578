# cython: language_level=3
"""What an acks file settles, as stretches of its segment in order.

Recovery steps over them; the thread that gives disk space back makes holes of them.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memset

from broker.store.files.record cimport (
    ACK_BYTES, ACK_RUN, ACK_SETTLED, ACK_VALUE_MASK, ACK_WATERMARK, ACKS_MAGIC, AckEntry,
    FORMAT_VERSION, HEADER_BYTES, ack_check,
)


cdef int by_position(const void* a, const void* b) noexcept nogil:
    cdef uint32_t left = (<const Span*> a).position
    cdef uint32_t right = (<const Span*> b).position
    return -1 if left < right else left > right


cdef int read_settled(const uint8_t* data, size_t length, uint64_t incarnation, uint32_t segment,
                      Settled* settled) noexcept nogil:
    """Fills `settled` from the bytes of an acks file; the caller frees it by `settled_free`.
    Returns an errno. A file without a header of this version counts as empty."""
    cdef size_t at = HEADER_BYTES
    cdef const AckEntry* entry
    cdef uint32_t kind, i, unsound
    cdef uint32_t kept = 0
    cdef Span* span
    cdef uint64_t end
    memset(settled, 0, sizeof(Settled))
    if length < HEADER_BYTES or (<const uint32_t*> data)[0] != ACKS_MAGIC:
        return 0
    if (<const uint32_t*> data)[1] != FORMAT_VERSION:
        return 0
    settled.end = HEADER_BYTES
    settled.spans = <Span*> malloc((length // ACK_BYTES + 1) * sizeof(Span))
    if settled.spans == NULL:
        return 12
    unsound = 0
    while at + ACK_BYTES <= length:
        entry = <const AckEntry*> (data + at)
        at += ACK_BYTES
        if entry.check != ack_check(entry, incarnation, segment):
            unsound += 1
            continue
        settled.unsound += unsound
        unsound = 0
        settled.end = at
        kind = entry.word >> 30
        if kind == ACK_SETTLED or kind == ACK_RUN:
            span = &settled.spans[settled.count]
            span.position = entry.position
            span.length = entry.word & ACK_VALUE_MASK
            if kind == ACK_RUN:
                settled.runs += 1
            settled.count += 1
        elif kind == ACK_WATERMARK:
            settled.watermark = entry.position
        else:
            if settled.returns == NULL:
                settled.returns = <Span*> malloc((length // ACK_BYTES + 1) * sizeof(Span))
                if settled.returns == NULL:
                    settled_free(settled)
                    return 12
            span = &settled.returns[settled.return_count]
            span.position = entry.position
            span.length = entry.word & ACK_VALUE_MASK
            settled.return_count += 1
    if settled.count == 0:
        return 0
    qsort(settled.spans, settled.count, sizeof(Span), &by_position)
    settled.entries = settled.count - settled.runs
    settled.entry_bytes = 0
    for i in range(settled.count):
        span = &settled.spans[i]
        settled.entry_bytes += span.length
        if i == 0:
            continue
        end = <uint64_t> settled.spans[kept].position + settled.spans[kept].length
        if span.position > end:
            kept += 1
            settled.spans[kept] = span[0]
        else:
            if span.position == settled.spans[i - 1].position or span.position < end:
                # Named twice, or by a run too: the exact count is unknown.
                settled.runs += 1
            if <uint64_t> span.position + span.length > end:
                settled.spans[kept].length = (
                    span.position + span.length - settled.spans[kept].position)
    settled.count = kept + 1
    return 0


cdef void settled_free(Settled* settled) noexcept nogil:
    free(settled.spans)
    free(settled.returns)
    settled.spans = settled.returns = NULL

# cython: language_level=3
"""Memory of tails: the records of queues and streams that are not written yet.

A small tail is allocated and copied when it grows. A larger one is mapped in its full length at
once: a page costs nothing until something is written to it, and nothing is copied any further. One
message may make the tails of 254 queues grow in the same turn; if they had 512 KiB each and were
copied, that turn would take 24 ms.

Fresh pages are slow at their first use. So some mappings that are free are kept as spares; a thread
gives back those that no tail needed for ten ticks of the persister, two seconds.
"""

from libc.stdint cimport uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from broker.kernel.large_body cimport Unused, give_back


cdef extern from "<sys/mman.h>" nogil:
    void* c_mmap "mmap"(void*, size_t, int, int, int, long)
    void* c_mremap "mremap"(void*, size_t, size_t, int)
    int PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS, MAP_NORESERVE, MREMAP_MAYMOVE
    void* MAP_FAILED


cdef enum:
    TAIL_FIRST = 512                         # bytes a new tail starts with
    TAIL_MAPPED = TAIL_FULL + (64 << 10)     # of a mapping, if its records are not larger
    SPARES_MAX = 32
    KEPT_TICKS = 10

# Of TAIL_MAPPED bytes each; the fewest there were in KEPT_TICKS are of no use.
cdef Unused* spares = NULL
cdef int ticks = 0
cdef size_t spare_count = 0
cdef size_t fewest_spares = 0


cdef size_t doubled(size_t capacity, size_t wanted) noexcept:
    """The capacity, doubled until it is enough."""
    while capacity < wanted:
        capacity *= 2
    return capacity


cdef uint8_t* mapped(size_t wanted, size_t* capacity) noexcept:
    """A mapping of `wanted` bytes or more; NULL if there is no memory."""
    global spares, spare_count, fewest_spares
    cdef void* data
    if wanted <= TAIL_MAPPED:
        wanted = TAIL_MAPPED
        if spares != NULL:
            data = spares
            spares = spares.next
            spare_count -= 1
            if fewest_spares > spare_count:
                fewest_spares = spare_count
            capacity[0] = wanted
            return <uint8_t*> data
    else:
        wanted = doubled(TAIL_MAPPED, wanted)
    data = c_mmap(NULL, wanted, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
    if data == MAP_FAILED:
        return NULL
    capacity[0] = wanted
    return <uint8_t*> data


cdef uint8_t* tail_new(size_t wanted, size_t* capacity) noexcept:
    """Memory for a tail of `wanted` bytes, and its capacity. NULL if there is no memory."""
    if wanted > TAIL_COPIED:
        return mapped(wanted, capacity)
    capacity[0] = doubled(TAIL_FIRST, wanted)
    return <uint8_t*> malloc(capacity[0])


cdef uint8_t* tail_grown(uint8_t* data, size_t length, size_t wanted, size_t* capacity) noexcept:
    """More memory for a tail with `length` bytes of records; its new capacity. NULL if there is no
    memory: the tail stays as it is."""
    cdef uint8_t* grown
    cdef void* moved
    cdef size_t more
    if wanted <= TAIL_COPIED:
        more = doubled(capacity[0], wanted)
        grown = <uint8_t*> realloc(data, more)
        if grown != NULL:
            capacity[0] = more
        return grown
    if capacity[0] > TAIL_COPIED:
        more = doubled(capacity[0], wanted)
        moved = c_mremap(data, capacity[0], more, MREMAP_MAYMOVE)
        if moved == MAP_FAILED:
            return NULL
        capacity[0] = more
        return <uint8_t*> moved
    grown = mapped(wanted, capacity)
    if grown != NULL:
        memcpy(grown, data, length)
        free(data)
    return grown


cdef void tail_free(uint8_t* data, size_t capacity) noexcept:
    global spares, spare_count
    cdef Unused* spare = <Unused*> data
    if capacity <= TAIL_COPIED:
        free(data)
    elif capacity == TAIL_MAPPED and spare_count < SPARES_MAX:
        spare.next = spares
        spares = spare
        spare_count += 1
    else:
        give_back(spare, capacity)


cdef void give_back_spares() noexcept:
    """Once a tick: gives back the mappings that no tail needed in the last KEPT_TICKS."""
    global spares, spare_count, fewest_spares, ticks
    cdef Unused* spare
    ticks += 1
    if ticks < KEPT_TICKS:
        return
    ticks = 0
    while fewest_spares:
        fewest_spares -= 1
        spare_count -= 1
        spare = spares
        spares = spare.next
        give_back(spare, TAIL_MAPPED)
    fewest_spares = spare_count


def count_spares() -> int:
    """Mappings that no tail has."""
    return spare_count

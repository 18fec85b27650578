from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from broker.store.keys.layout cimport CompactedHead, PAGE, PROBES


cdef extern from * nogil:
    """
    #ifndef LEVERET_SCALED
    #define LEVERET_SCALED
    static inline uint64_t scaled_to(uint64_t hash, uint64_t range) {
        return (uint64_t)(((unsigned __int128)hash * range) >> 64);
    }
    #endif
    """
    uint64_t scaled_to(uint64_t hash, uint64_t range)


cdef uint32_t page_of(uint64_t hash, uint32_t pages) noexcept nogil
cdef void mark(uint8_t* filter, uint32_t pages, uint64_t hash) noexcept nogil
cdef bint marked(const uint8_t* page, uint64_t hash) noexcept nogil


cdef class Compacted:
    cdef CompactedHead head
    cdef readonly str name               # for messages to people
    cdef readonly list rows              # streams by number
    cdef list incarnations
    cdef readonly bytes secret
    cdef bytes checks                    # of the pages

    cdef int check_page(self, bytes page, uint32_t number) except -1

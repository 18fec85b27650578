# Memory of arrays that may have megabytes: large ones are mapped by themselves, and grow by being
# mapped to other addresses. To copy 6 MiB to fresh memory takes 4 to 18 ms, which are a turn.
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy


cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <sys/mman.h>
    """
    void* mmap(void* address, size_t length, int protection, int flags, int fd, long offset) nogil
    void* mremap(void* address, size_t length, size_t wanted, int flags, ...) nogil
    int munmap(void* address, size_t length) nogil
    void* MAP_FAILED
    int MAP_ANONYMOUS, MAP_PRIVATE, MREMAP_MAYMOVE, PROT_READ, PROT_WRITE


cdef enum:
    MAPPED_LEAST = 512 * 1024


cdef inline void* mapped_anew(size_t size) noexcept nogil:
    cdef void* memory = mmap(
        NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    return NULL if memory == MAP_FAILED else memory


cdef inline void* grown_memory(void* memory, size_t size, size_t wanted) noexcept nogil:
    """`memory` of `size` bytes, NULL for 0, with the `wanted` ones, which are more; elsewhere
    perhaps. NULL: they cannot be had, and what there was stays."""
    cdef void* grown
    if wanted < MAPPED_LEAST:
        return realloc(memory, wanted)
    if memory == NULL:
        return mapped_anew(wanted)
    if size >= MAPPED_LEAST:
        grown = mremap(memory, size, wanted, MREMAP_MAYMOVE)
        return NULL if grown == MAP_FAILED else grown
    grown = mapped_anew(wanted)
    if grown != NULL:
        memcpy(grown, memory, size)
        free(memory)
    return grown


cdef inline void free_memory(void* memory, size_t size) noexcept nogil:
    """Gives back what `grown_memory` gave; `size` bytes of it were asked for."""
    if memory == NULL:
        return
    if size >= MAPPED_LEAST:
        munmap(memory, size)
    else:
        free(memory)

from libc.stdint cimport uint32_t

from broker.features.delayed.entry cimport Entry
from broker.store.files.operation cimport File


# What a look at the next entry finds.
cdef enum:
    NONE = 0
    THERE = 1
    LATER = 2

cdef enum:
    BUFFERED = 73                        # entries read at a time: 2 KiB


cdef class Run:
    cdef readonly uint32_t number
    cdef readonly uint32_t count         # entries in it
    cdef uint32_t at                     # the next one
    cdef Entry* array                    # all of them, while they are in memory
    cdef File* file                      # NULL before there is one
    cdef Entry* buffer                   # some of them, as read from the file
    cdef uint32_t buffer_from
    cdef uint32_t buffer_count
    cdef bint on_disk
    cdef bint finished

    cdef int head(self, Entry* entry) except -1
    cdef void compact(self) noexcept
    cdef int load(self, uint32_t index, uint32_t count) except -1

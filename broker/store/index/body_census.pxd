from libc.stdint cimport uint8_t, uint32_t, uint64_t

from broker.store.files.operation cimport File
from broker.store.index.location cimport Location


cdef class ReferenceCounter:
    cdef int count_reference(self, const uint8_t* id) except -1


# Bytes of living records by file.
cdef class FileSums:
    cdef uint32_t* numbers               # rising
    cdef uint64_t* sums
    cdef size_t count
    cdef size_t last                     # where the last one was found

    cdef int add(self, uint32_t number) except -1
    cdef void lives(self, uint32_t number, uint64_t length) noexcept


# The bodies of one file: a stretch of rows, in the order of their ids.
cdef struct Part:
    uint8_t first[16]
    uint8_t last[16]
    uint8_t highest[16]                  # the last id of this one and of all before
    uint64_t start                       # its first row
    uint64_t rows


cdef struct Page:
    uint64_t number                      # of the page in the file, from 1; 0 = nothing
    bint changed
    Location* rows


cdef class BodyCensus(ReferenceCounter):
    cdef File* file                      # without a name
    cdef Location* memory                # all rows, where the disk has no room for the file
    cdef readonly uint64_t rows
    cdef Part* parts
    cdef size_t part_count
    cdef bint in_order                   # the parts are sorted and have their highest ids
    cdef Page* pages
    cdef uint64_t following              # the row behind the one that was found last
    cdef FileSums sums

    cdef int store(self, Location* rows, size_t count) except -1
    cdef int to_memory(self) except -1
    cdef Location* row(self, uint64_t index, bint change) except NULL
    cdef int load(self, Page* page, uint64_t number) except -1
    cdef int put_parts_in_order(self) except -1
    cdef bint search(self, const uint8_t* id) except? True
    cdef bint search_part(self, Part* part, const uint8_t* id) except? True

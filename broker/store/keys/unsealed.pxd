from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from broker.store.files.operation cimport File
from broker.store.keys.hashing cimport Secret
from broker.store.keys.layout cimport Item, StreamRow, UnsealedHead


cdef class Unsealed:
    cdef readonly str path
    cdef readonly uint32_t number
    cdef readonly uint64_t file_id
    cdef readonly uint64_t serial        # items in all files of the series before
    cdef readonly bytes secret
    cdef readonly uint32_t capacity
    cdef readonly uint32_t slot_count
    cdef readonly uint32_t count         # items
    cdef readonly int64_t begin_ms
    cdef readonly int64_t first_ms
    cdef readonly int64_t last_ms
    cdef readonly uint64_t length        # of the file; 0: not made yet
    cdef readonly uint32_t written       # items in the file
    cdef readonly bint torn              # what stood behind the last sound batch was cut
    cdef Secret key
    cdef Item* items
    cdef uint32_t* slots                 # the newest item of each, from 1; 0: none
    cdef StreamRow* table
    cdef uint8_t* changed                # rows that are to be written
    cdef uint32_t row_count
    cdef uint32_t changed_count
    cdef uint32_t batches
    cdef uint32_t linked                 # items that are found
    cdef bint has_begun
    cdef dict numbers                    # incarnation -> row
    cdef list incarnations
    cdef File* file

    cdef bint add(self, uint64_t hash, uint32_t row, uint32_t segment, uint32_t position,
                  uint32_t size, int64_t time) noexcept nogil
    cdef void link(self) noexcept nogil
    cdef void touch(self, uint32_t row) noexcept nogil
    cdef void advance(self, uint32_t row, uint32_t segment, uint32_t position,
                      int64_t time) noexcept nogil
    cdef int write_at_end(self, uint8_t* data, size_t size) except -1
    cdef void head_put(self, UnsealedHead* head) noexcept
    cdef size_t batch_put(self, uint8_t* place) noexcept nogil
    cdef size_t batch_take(self, const uint8_t* place, size_t available) noexcept

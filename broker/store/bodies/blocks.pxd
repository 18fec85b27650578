cimport cython
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from broker.kernel.large_body cimport LargeBody
from broker.kernel.message cimport Message
from broker.store.commit.persister cimport Persister
from broker.store.index.number_table cimport NumberTable


# Bodies are collected in blocks of memory. A block is freed when none of its bodies is in flight.
cdef struct BodyBlock:
    uint8_t* data
    void* large                  # the LargeBody whose memory this is, or NULL
    size_t capacity
    size_t length
    Body* first                  # in the order of their records
    Body* last
    BodyBlock* next


# A body in flight: not written yet, or in the round that writes it.
cdef struct Body:
    uint8_t id[16]
    uint32_t length              # of the body; id and length make up a reference
    uint32_t references          # and one while it is being published
    size_t position              # of its record in the block
    uint32_t file                # 0 until a round takes it
    uint32_t offset
    bint durable                 # a durable queue has a reference
    BodyBlock* block
    Body* before
    Body* after


@cython.final
cdef class BodyBlocks:
    cdef Persister persister
    cdef size_t capacity             # of a block, at most
    cdef uint16_t boot
    cdef uint64_t sequence
    cdef int64_t last_ms
    cdef NumberTable flying          # sequence -> Body*
    cdef BodyBlock* first_block      # not written yet
    cdef BodyBlock* last_block
    cdef BodyBlock* written_blocks   # in the round in flight
    cdef size_t gathered             # bytes not written yet

    cdef Body* gather(self, Message* message) except NULL
    cdef Body* in_flight(self, const uint8_t* id) noexcept
    cdef void landed(self, Body* body) noexcept
    cdef uint8_t* room(self, size_t size, BodyBlock** block) except NULL
    cdef BodyBlock* new_block(self, size_t capacity) except NULL
    cdef BodyBlock* take_over(self, LargeBody large) except NULL
    cdef void append_block(self, BodyBlock* block) noexcept
    cdef int forget(self, Body* body) except -1
    cdef int forget_all(self) except -1
    cdef int release_block(self, BodyBlock* block) except -1

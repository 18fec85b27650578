# cython: language_level=3
"""Shared bodies in flight: in memory until a round of the persister has written them.

They are collected in blocks, in the form that they will have in a file. Until they are written they
are read from here. A body whose last reference is removed before a round takes it is dropped.
"""

cimport cython
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy

from broker.kernel cimport clock
from broker.kernel.buffer cimport load64, store16, store32, store64
from broker.kernel.large_body cimport LargeBody
from broker.kernel.message cimport Message
from broker.store.commit.persister cimport Persister
from broker.store.files.body_record cimport BODY_HEAD, BodyHead
from broker.store.index.number_table cimport NumberTable, Row

cdef enum:
    BLOCK_FIRST = 64 << 10       # bytes a block starts with


cdef inline uint64_t sequence_of(const uint8_t* id) noexcept nogil:
    return load64(id + 8)


cdef inline bint can_take(LargeBody large) noexcept:
    """Whether its memory can become that of a record."""
    return not large.stored and large.head >= BODY_HEAD


cdef void free_block(BodyBlock* block) noexcept:
    if block.large != NULL:
        Py_DECREF(<object> block.large)
    else:
        free(block.data)
    free(block)


@cython.final
cdef class BodyBlocks:
    """The bodies in flight of one store, in blocks of at most `capacity` bytes or one body."""

    def __cinit__(self, Persister persister, size_t capacity):
        self.persister = persister
        self.capacity = capacity
        self.flying = NumberTable()

    def __dealloc__(self):
        cdef BodyBlock* block
        cdef BodyBlock* blocks[2]
        cdef Body* body
        cdef int i
        blocks[0] = self.first_block
        blocks[1] = self.written_blocks
        for i in range(2):
            while blocks[i] != NULL:
                block = blocks[i]
                blocks[i] = block.next
                while block.first != NULL:
                    body = block.first
                    block.first = body.after
                    free(body)
                free_block(block)

    cdef Body* gather(self, Message* message) except NULL:
        """Takes the body of a message in, under a new id and with one reference: copied, or with
        its memory if that holds nothing else."""
        cdef BodyBlock* block
        cdef size_t size = <size_t> BODY_HEAD + message.body_length
        cdef bint is_taken = message.large != NULL and can_take(<LargeBody> message.large)
        cdef uint8_t* place
        cdef BodyHead* head
        cdef Body* body = <Body*> calloc(1, sizeof(Body))
        if body == NULL:
            raise MemoryError("no memory for a shared body")
        try:
            if is_taken:
                block = self.take_over(<LargeBody> message.large)
                place = block.data
            else:
                place = self.room(size, &block)
        except BaseException:
            free(body)
            raise
        head = <BodyHead*> place
        self.sequence += 1
        if clock.now_ms > self.last_ms:
            # Never back: ids rise even if the clock does not.
            self.last_ms = clock.now_ms
        store16(body.id, <uint16_t> (self.last_ms >> 32))
        store32(body.id + 2, <uint32_t> self.last_ms)
        store16(body.id + 6, self.boot)
        store64(body.id + 8, self.sequence)
        body.length = message.body_length
        body.references = 1
        body.block = block
        body.position = place - block.data
        body.before = block.last
        if block.last != NULL:
            block.last.after = body
        else:
            block.first = body
        block.last = body
        self.flying.put(self.sequence).first = <uint64_t> body
        head.length = message.body_length
        head.check = 0
        memcpy(head.id, body.id, 16)
        if not is_taken:
            memcpy(place + BODY_HEAD, message.body, message.body_length)
        block.length += size
        self.gathered += size
        if is_taken:
            self.persister.large_bytes += size
        else:
            self.persister.tail_bytes += size
        return body

    cdef Body* in_flight(self, const uint8_t* id) noexcept:
        """The body, if it is in memory; else NULL."""
        cdef Row* row
        cdef Body* body
        if self.flying.count == 0:
            return NULL
        row = self.flying.find(sequence_of(id))
        if row == NULL:
            return NULL
        body = <Body*> row.first
        return body if memcmp(body.id, id, 16) == 0 else NULL

    cdef uint8_t* room(self, size_t size, BodyBlock** where) except NULL:
        """Where a record of this size is put."""
        cdef BodyBlock* block = self.last_block
        cdef size_t capacity = self.capacity
        cdef uint8_t* grown
        if block != NULL and block.large != NULL:
            block = self.new_block(size if size > BLOCK_FIRST else BLOCK_FIRST)
        elif block != NULL and block.length + size > block.capacity and (
                block.length + size <= capacity):
            capacity = block.capacity
            while capacity < block.length + size:
                capacity *= 2
            grown = <uint8_t*> realloc(block.data, capacity)
            if grown == NULL:
                raise MemoryError("no memory for shared bodies")
            block.data = grown
            block.capacity = capacity
        elif block == NULL or block.length + size > block.capacity:
            block = self.new_block(size if size > BLOCK_FIRST else BLOCK_FIRST)
        where[0] = block
        return block.data + block.length

    cdef BodyBlock* new_block(self, size_t capacity) except NULL:
        """An empty block at the end."""
        cdef BodyBlock* block = <BodyBlock*> calloc(1, sizeof(BodyBlock))
        if block != NULL:
            block.data = <uint8_t*> malloc(capacity)
        if block == NULL or block.data == NULL:
            free(block)
            raise MemoryError("no memory for shared bodies")
        block.capacity = capacity
        self.append_block(block)
        return block

    cdef BodyBlock* take_over(self, LargeBody large) except NULL:
        """A block whose memory is that of a large body."""
        cdef BodyBlock* block = <BodyBlock*> calloc(1, sizeof(BodyBlock))
        if block == NULL:
            raise MemoryError("no memory for shared bodies")
        Py_INCREF(large)
        large.stored = True
        block.large = <void*> large
        block.data = large.body() - BODY_HEAD
        block.capacity = <size_t> BODY_HEAD + large.length
        self.append_block(block)
        return block

    cdef void append_block(self, BodyBlock* block) noexcept:
        if self.last_block == NULL:
            self.first_block = block
        else:
            self.last_block.next = block
        self.last_block = block

    cdef int forget(self, Body* body) except -1:
        """Takes a body that is not written out of memory."""
        cdef BodyBlock* block = body.block
        cdef BodyBlock* before = NULL
        self.flying.remove(self.flying.find(sequence_of(body.id)))
        self.gathered -= <size_t> BODY_HEAD + body.length
        if body.before != NULL:
            body.before.after = body.after
        else:
            block.first = body.after
        if body.after != NULL:
            body.after.before = body.before
        else:
            block.last = body.before
        free(body)
        if block.first != NULL:
            return 0
        if block == self.last_block and block.large == NULL:
            self.persister.tail_bytes -= block.length
            block.length = 0
            return 0
        if self.first_block == block:
            self.first_block = block.next
        else:
            before = self.first_block
            while before.next != block:
                before = before.next
            before.next = block.next
        if block == self.last_block:
            self.last_block = before
        return self.release_block(block)

    cdef int forget_all(self) except -1:
        """Takes all bodies that no round took yet out of memory."""
        cdef BodyBlock* block
        cdef Body* body
        while self.first_block != NULL:
            block = self.first_block
            self.first_block = block.next
            while block.first != NULL:
                body = block.first
                block.first = body.after
                self.landed(body)
            self.release_block(block)
        self.last_block = NULL
        self.gathered = 0
        return 0

    cdef int release_block(self, BodyBlock* block) except -1:
        if block.large != NULL:
            self.persister.large_bytes -= block.length
        else:
            self.persister.tail_bytes -= block.length
        free_block(block)
        return 0

    cdef void landed(self, Body* body) noexcept:
        """The body is not in flight any more: if it was written, the index finds it from now on."""
        self.flying.remove(self.flying.find(sequence_of(body.id)))
        free(body)

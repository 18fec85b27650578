# cython: language_level=3
"""How one queue reads shared bodies: those in memory, or one at a time from disk, without waiting
on the loop and without a lock. A body file never changes; one that is replaced while it is read is
removed after that.
"""

import logging
import os

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from broker.kernel.buffer cimport load64
from broker.kernel.large_body cimport LARGE_BODY, LargeBody
from broker.kernel.message cimport Message
from broker.store.bodies.blocks cimport Body
from broker.store.bodies.body_index import ENTRY
from broker.store.bodies.file cimport BodyFile
from broker.store.bodies.store cimport BodyStore
from broker.store.commit.contracts cimport Dirty
from broker.store.commit.persister cimport Persister
from broker.store.files.body_record cimport BODY_HEAD, BodyHead, body_is_sound
from broker.store.files.disk cimport read_now
from broker.store.files.file_list cimport is_open
from broker.store.files.operation cimport OP_READ, Op
from broker.store.files.io_thread cimport Round, STAGE_WRITE, round_add, round_new
from broker.store.index.location cimport Location

log = logging.getLogger("leveret.store")

cdef enum:
    KEEP = 64 << 10              # a buffer up to this size is kept between bodies

cdef enum:
    NOTHING = 0
    WAITING = 1
    READY = 2
    MISSING = 3


cdef class BodyReader(Dirty):
    """`wake()` is called when a body that had to be waited for is there."""

    def __init__(self, BodyStore store, wake):
        self.store = store
        self.wake = wake

    def __dealloc__(self):
        free(self.data)

    cdef int want(self, Message* message) except -1:
        """Points the message at its body; BODY_WAIT: `wake` is called. BODY_MISSING: there is none,
        the message is lost. The view ends with the next call."""
        cdef BodyStore store = self.store
        cdef const uint8_t* id = message.reference
        cdef Body* body = store.blocks.in_flight(id)
        cdef Location* found
        if body != NULL:
            if self.last_hit != load64(id + 8):
                self.last_hit = load64(id + 8)
                store.in_flight_hits += 1
            message.body = body.block.data + body.position + BODY_HEAD
            message.large = body.block.large
            return BODY_FOUND
        if self.state == WAITING:
            return BODY_WAIT
        if self.state == NOTHING or memcmp(self.id, id, 16) != 0:
            memcpy(self.id, id, 16)
            self.length = message.body_length
            self.state = MISSING
            store.in_flight_misses += 1
            if store.located.is_asked():
                self.ask(id[:16])
            else:
                found = store.located.find(id)
                if found != NULL:
                    self.read(found.file, found.offset, found.length)
        if self.state == READY and self.large is not None:
            message.body = self.large.body()
            message.large = <void*> self.large
            return BODY_FOUND
        if self.state == READY:
            message.body = self.data + BODY_HEAD
            return BODY_FOUND
        return BODY_WAIT if self.state == WAITING else BODY_MISSING

    def ask(self, bytes id):
        """Asks an index that may have to wait for the disk."""
        self.state = WAITING
        self.store.reading.add(self)
        self.store.hand_over()
        self.store.located.ask(id, self.located)

    def located(self, value, error):
        """The index has answered."""
        self.state = MISSING
        self.store.reading.discard(self)
        if error is not None:
            # It is not known whether there is a body: the caller asks again, and it is looked up
            # again.
            self.state = NOTHING
            self.store.persister.failed_reads.add(
                f"the index of {self.store.directory}", str(error), self.wake)
            return
        if value is not None:
            file, offset, length, _ = ENTRY.unpack(value)
            self.read(file, offset, length)
        if self.state != WAITING:
            self.wake()

    cdef int read(self, uint32_t number, uint32_t offset, uint32_t length) except -1:
        """Reads a record: at once if the page cache has it, else by the reader thread, which reads
        and checks the large ones in any case."""
        cdef BodyFile file = self.store.files.get(number)
        cdef uint8_t* grown
        cdef ssize_t got
        if file is None:
            return 0
        self.file = number
        self.offset = offset
        if length >= LARGE_BODY + BODY_HEAD:
            self.large = LargeBody(BODY_HEAD, length - BODY_HEAD)
            return self.start_reading(file, self.large.memory, length)
        self.large = None
        if length > self.capacity or self.capacity > 2 * <size_t> length + KEEP:
            grown = <uint8_t*> realloc(self.data, length)
            if grown == NULL:
                raise MemoryError("no memory for a shared body")
            self.data = grown
            self.capacity = length
        if is_open(file.file):
            got = read_now(file.file.fd, self.data, length, offset)
            if got == <ssize_t> length:
                self.store.cache_hits += 1
                return self.check(got)
        return self.start_reading(file, self.data, length)

    cdef int start_reading(self, BodyFile file, uint8_t* data, uint32_t length) except -1:
        """Lets the thread read a record."""
        cdef Persister persister = self.store.persister
        cdef Round* round = round_new()
        cdef Op* op
        self.store.cache_misses += 1
        persister.files.use(round, file.file)
        op = round_add(round, STAGE_WRITE, OP_READ, file.file)
        op.data = data
        op.length = length
        op.offset = self.offset
        op.is_body = self.large is not None
        op.incarnation = self.store.incarnation
        self.state = WAITING
        self.store.reading.add(self)
        return persister.read(round, self)

    cdef int check(self, size_t got) except -1:
        """What was read into `data`."""
        return self.found(
            body_is_sound(self.data, got, self.length + BODY_HEAD, self.store.incarnation), got)

    cdef int found(self, bint is_sound, size_t got) except -1:
        """A record of `got` bytes was read, and is sound or not."""
        cdef uint8_t* data = self.data if self.large is None else self.large.memory
        cdef BodyHead* head = <BodyHead*> data
        if is_sound and head.length == self.length and memcmp(head.id, self.id, 16) == 0:
            self.state = READY
            return 0
        self.state = MISSING
        log.error("the shared body %s in file %d of %s is damaged; its message is dropped",
                  self.id[:16].hex(), self.file, self.store.directory)
        self.store.persister.quarantine.take(
            self.store.incarnation, self.file, self.offset, data[:got], got,
            self.store.persister.background)
        return 0

    cdef int read_done(self, Round* round) except -1:
        cdef Op* op = &round.stages[STAGE_WRITE].ops[0]
        self.store.reading.discard(self)
        if round.error:
            # A disk that does not answer proves nothing about the body: its message is kept.
            self.state = NOTHING
            self.store.persister.failed_reads.add(
                f"a shared body of {self.store.directory}", os.strerror(round.error), self.wake)
        elif self.large is not None:
            self.found(op.is_sound, op.done)
        else:
            self.check(op.done)
        if self.store.leaving:
            self.store.retry()
        if not round.error:
            self.wake()
        if self.has_ended:
            self.rest()
        return 0

    def end(self) -> None:
        """The queue is deleted, though some may still have it for a while: keeps no body."""
        self.has_ended = True
        self.rest()

    def rest(self) -> None:
        """Gives back the memory of the last body."""
        if self.state != WAITING:
            free(self.data)
            self.data = NULL
            self.large = None
            self.capacity = 0
            self.state = NOTHING

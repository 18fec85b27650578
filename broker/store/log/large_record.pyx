# cython: language_level=3
"""A record with a large body that is not in memory: a thread reads and checks it, and its body is
handed on with its memory (`broker.kernel.large_body`).
"""

from libc.stdint cimport uint32_t, uint64_t

from broker.kernel.large_body cimport LargeBody
from broker.store.commit.contracts cimport Dirty
from broker.store.commit.persister cimport Persister
from broker.store.files.io_thread cimport Round, STAGE_WRITE, round_add, round_new
from broker.store.files.operation cimport File, OP_READ, Op
from broker.store.files.record cimport RecordHead


cdef class LargeRecord:
    """One at a time. What was read stays until the next one is."""

    cdef bint is_at(self, uint32_t segment, uint32_t position) noexcept:
        """Whether the record at this place was read."""
        return self.whole is not None and self.segment == segment and self.position == position

    cdef int read(self, Persister persister, File* file, uint64_t incarnation, uint32_t segment,
                  uint32_t position, const RecordHead* head, Dirty owner) except -1:
        """Lets the thread read it; `owner.read_done` is called, and calls `done`. Raises
        MemoryError."""
        cdef LargeBody whole = LargeBody(head.length + 4 - head.body_length, head.body_length)
        cdef Round* round = round_new()
        cdef Op* op
        self.whole = whole
        self.segment = segment
        self.position = position
        self.is_sound = False
        persister.files.use(round, file)
        op = round_add(round, STAGE_WRITE, OP_READ, file)
        op.data = whole.memory
        op.length = whole.head + whole.length
        op.offset = position
        op.incarnation = incarnation
        op.segment = segment
        op.is_record = True
        persister.segment_reads += 1
        return persister.read(round, owner)

    cdef int done(self, Round* round) except -1:
        """The thread is done. Returns its error."""
        self.is_sound = round.stages[STAGE_WRITE].ops[0].is_sound
        if round.error:
            self.whole = None
        else:
            self.front = self.whole.memory[:self.whole.head]
        return round.error

# cython: language_level=3
"""Records that found the disk full: they stay in memory, unconfirmed, and go with the next round.

What may be written only behind them (`STAGE_BEHIND`) waits with them. Their files stay busy
meanwhile, so that they are neither closed nor removed.
"""

from libc.stdint cimport uint8_t

from broker.store.files.operation cimport Op
from broker.store.files.io_thread cimport (
    OpList, Round, STAGE_BEHIND, STAGE_WRITE, round_add, round_free, round_new,
)


cdef int move(Round* source, Round* target) except -1:
    """Adds those operations to a round that are still to be carried out."""
    cdef OpList* ops
    cdef Op* op
    cdef int stage, i
    for stage in (STAGE_WRITE, STAGE_BEHIND):
        ops = &source.stages[stage]
        for i in range(ops.count):
            if ops.ops[i].can_wait and ops.ops[i].error:
                op = round_add(target, stage, ops.ops[i].kind, ops.ops[i].file)
                op[0] = ops.ops[i]
                ops.ops[i].owns_data = False
    return 0


cdef class Postponed:
    """The postponed operations of one persister, in their order. `any`: there are some."""

    def __dealloc__(self):
        if self.round != NULL:
            round_free(self.round)

    cdef int keep(self, Round* round) except -1:
        """Takes what the writer could not write in a round that is over."""
        self.round = round_new()
        move(round, self.round)
        self.any = self.round.stages[STAGE_WRITE].count > 0
        return 0

    cdef int give(self, Round* round) except -1:
        """Puts them into the next round, in front: they come before what was stored since."""
        cdef OpList* ops
        cdef int stage, i
        if self.round == NULL:
            return 0
        move(self.round, round)
        for stage in (STAGE_WRITE, STAGE_BEHIND):
            ops = &self.round.stages[stage]
            for i in range(ops.count):
                ops.ops[i].file.busy -= 1
        round_free(self.round)
        self.round = NULL
        self.any = False
        return 0

    cdef bint holds(self, const uint8_t* data, size_t length=1) noexcept:
        """Whether these records, or some of them, are among them."""
        cdef OpList* ops
        cdef int i
        if self.any:
            ops = &self.round.stages[STAGE_WRITE]
            for i in range(ops.count):
                if data <= ops.ops[i].data < data + length:
                    return True
        return False

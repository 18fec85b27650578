# cython: language_level=3
"""Deferred work for a sealed segment: writes its summary, and frees the disk space of its settled
messages.

Both wait for a sync: a summary promises that the whole segment is on disk, and a hole must never be
older on disk than the acks that allow it. Positions never change.
"""

import errno
import logging
import os

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport malloc
from libc.string cimport memset, strdup

from broker.kernel.checksum cimport crc32c_of, place_seed
from broker.store.commit.contracts cimport Dirty
from broker.store.files.operation cimport File, OP_PUNCH, OP_WRITE_FILE, Op
from broker.store.files.io_thread cimport Round, STAGE_REMOVE, round_add, round_new
from broker.store.files.record cimport FORMAT_VERSION, HEADER_BYTES, SUMMARY_MAGIC, Summary
from broker.store.log.segments cimport Block, MIXED, Segment, Segments, WRITING, WRITTEN

log = logging.getLogger("leveret.store")


cdef uint64_t punch_when(Segment* segment) noexcept:
    """From how many settled bytes on making holes gives back a quarter of what the segment takes,
    and at least two blocks: so often that little stays, so rarely that it costs little."""
    cdef uint64_t quarter = (segment.length - segment.holes) // 4
    return segment.holes + (quarter if quarter > 8192 else 8192)


@cython.final
cdef class Sealed:
    """The background work for one store's sealed segments. The `owner`, which is the store, is
    told when a piece of it is done (`background_done`)."""

    def __init__(self, Segments segments):
        self.segments = segments

    cdef bint synced(self, File* file) noexcept:
        """Whether all that was handed to the writer is on disk."""
        return file != NULL and not file.busy and not file.dirty

    cdef bint work(self, Dirty owner) except? True:
        """Everything is synced. Returns whether something has to wait for the next such round."""
        cdef Segment* segment = self.segments.head
        cdef bint waits = False
        while segment != NULL:
            if segment.sealed:
                if not segment.summarised and not self.summarise(segment, owner):
                    waits = True
                if (segment.settled_bytes >= segment.punch_at
                        and self.segments.persister.background.makes_holes
                        and not self.punch(segment, owner)):
                    waits = True
            segment = segment.next
        return waits

    cdef bint summarise(self, Segment* segment, Dirty owner) except? True:
        """Hands the summary to the writer if the segment is on disk."""
        cdef Round* round
        cdef Op* op
        cdef Summary* summary
        cdef Block* block
        if segment.messages == NULL or segment.overhead == 0:
            # None of it has been passed to the writer yet.
            return False
        if not self.synced(segment.messages):
            return False
        block = self.segments.first_block
        while block != NULL:
            if block.segment == segment and block.state < WRITTEN:
                return False
            block = block.next
        segment.summarised = True
        round = round_new()
        op = round_add(round, STAGE_REMOVE, OP_WRITE_FILE, NULL)
        encoded = os.fsencode(f"{self.segments.folder.path}/meta.{segment.number:010d}")
        op.path = strdup(<char*> encoded)
        op.length = sizeof(Summary) + 4
        op.data = <uint8_t*> malloc(op.length)
        if op.data == NULL:
            raise MemoryError("no memory for a summary")
        op.owns_data = True
        summary = <Summary*> op.data
        memset(summary, 0, op.length)
        summary.magic = SUMMARY_MAGIC
        summary.version = FORMAT_VERSION
        summary.count = segment.count
        summary.length = segment.length
        summary.body_bytes = segment.body_bytes
        if segment.overhead != MIXED:
            summary.overhead = segment.overhead
        summary.flags = segment.flags
        summary.references = segment.referring
        (<uint32_t*> (op.data + sizeof(Summary)))[0] = crc32c_of(
            place_seed(self.segments.folder.incarnation, segment.number, 0), op.data,
            sizeof(Summary))
        self.segments.persister.background.remove_for(round, owner)
        return True

    cdef bint punch(self, Segment* segment, Dirty owner) except? True:
        """Allows holes where the synced acks cover whole blocks. A segment that the cursor has not
        left is skipped: it will soon be removed as a whole."""
        cdef Round* round
        cdef Op* op
        if segment.acks == NULL:
            return segment.pending_count == 0
        if (not segment.recovered and self.segments.cursor != NULL
                and segment.number >= self.segments.cursor.number):
            return True
        if self.punching or not self.synced(segment.acks) or segment.pending_count:
            return False
        if segment.messages != NULL and segment.messages.busy:
            # What is settled unread may be read still, for the references in it.
            return False
        self.punching = segment.number
        round = round_new()
        op = round_add(round, STAGE_REMOVE, OP_PUNCH, NULL)
        encoded = os.fsencode(f"{self.segments.folder.path}/msgs.{segment.number:010d}")
        op.path = strdup(<char*> encoded)
        op.length = segment.acks_length
        op.incarnation = self.segments.folder.incarnation
        op.segment = segment.number
        self.segments.persister.background.remove_for(round, owner)
        return True

    cdef int done(self, Round* round) except -1:
        """A round that was given to the thread is over."""
        cdef Op* op = &round.stages[STAGE_REMOVE].ops[0]
        cdef Segment* segment
        if op.kind == OP_WRITE_FILE:
            # A missing summary does no harm.
            return 0
        self.punching = 0
        if op.error == errno.EAGAIN:
            # The files are being copied; the next settled message tries again.
            return 0
        if op.error in (errno.EOPNOTSUPP, errno.ENOSYS):
            self.segments.persister.background.no_holes()
            return 0
        if op.error and op.error != errno.ENOENT:
            log.warning("%s: giving disk space back failed: %s", os.fsdecode(<bytes> op.path),
                        os.strerror(op.error))
        segment = self.segments.find(op.segment)
        if segment != NULL:
            segment.holes = op.done
            segment.punch_at = punch_when(segment)
            if op.error:
                segment.punch_at = <uint64_t> -1
            elif segment.settled_bytes >= segment.punch_at:
                # What was settled lies in too many small pieces: wait for more of it.
                segment.punch_at = segment.settled_bytes + (segment.punch_at - segment.holes)
        return 0

    # -- figures -----------------------------------------------------------------------------------

    cdef int64_t live_bytes(self) noexcept:
        """Bytes of the files that hold unsettled messages."""
        cdef Segment* segment = self.segments.head
        cdef Block* block = self.segments.first_block
        cdef int64_t count = 0
        while segment != NULL:
            if segment.messages != NULL:
                count += segment.length - HEADER_BYTES - segment.settled_bytes
            segment = segment.next
        while block != NULL:
            if block.state < WRITING and block.segment.messages != NULL:
                count -= block.length
            block = block.next
        return count if count > 0 else 0

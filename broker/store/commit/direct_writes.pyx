# cython: language_level=3
"""Small rounds that the kernel writes beside the loop, without the writing thread.

A round of a few records takes 130 microseconds on a good disk, and five changes between threads:
to the writing thread, two waits for the disk in there, and back. Where its records go into zeros
that are there already (`broker.store.files.space_ahead`), one call of the loop begins them instead,
with direct I/O and a sync that belongs to the write, or one for all files. The same eventfd tells
the loop when they are on disk. All else goes to the thread: acks, new files, directories,
definitions, large rounds, and rounds that an observer has to see.
"""

from libc.stdint cimport uint8_t
from libc.stdlib cimport calloc, free

from broker.store.commit.sync_method import ALL, EACH, MEASURED
from broker.store.files.async_io cimport (
    FLIGHT_FILES, Flight, Write, begin_flight, is_over, wait_for_all,
)
from broker.store.files.direct_blocks cimport FLIGHT_BYTES, put_blocks, whole_blocks
from broker.store.files.gate cimport enter_if_open, leave
from broker.store.files.io_thread cimport (
    STAGE_SYNC, STAGE_WRITE, STAGES, OpList, Round,
)
from broker.store.files.observer cimport observer
from broker.store.files.operation cimport BLOCK_BYTES, OP_WRITE_RECORDS, File, Op
from broker.store.files.seal cimport seal_records
from broker.store.files.space_ahead cimport has_room, is_frequent


cdef extern from "broker/store/files/native_aio.h" nogil:
    bint native_sync_is_for_all(int fd)


cdef extern from "<stdlib.h>" nogil:
    void* aligned_alloc(size_t alignment, size_t size)


cdef extern from "<errno.h>" nogil:
    int EAGAIN, EINVAL, EOPNOTSUPP, ENOSYS


cdef class DirectWrites:
    """One round at a time, which `begin` takes and `ended` gives back. Where every round is to be
    synced by `sync_method`, that of a write counts as a fdatasync of its file, and one sync for all
    files of a round does not."""

    def __cinit__(self, str sync_method=MEASURED):
        self.files = 64
        self.is_against = sync_method == ALL
        if sync_method == EACH:
            self.most = 1

    def __dealloc__(self):
        if self.round != NULL:
            # The disk reads from this memory.
            with nogil:
                wait_for_all()
        free(self.flight)
        free(self.blocks)

    cdef bint suits(self, Round* round) noexcept:
        """Whether all that the round writes are records for few files with zeros ahead: for one,
        where a sync of each would be needed."""
        cdef OpList* writes = &round.stages[STAGE_WRITE]
        cdef Op* op
        cdef int stage, index
        cdef int files = 0
        cdef size_t length = 0       # of records for the same file so far
        cdef size_t all_bytes = 0
        if not self.files or self.is_against or observer != NULL or not writes.count:
            return False
        for stage in range(STAGES):
            if stage != STAGE_WRITE and stage != STAGE_SYNC and round.stages[stage].count:
                return False
        for index in range(writes.count):
            op = &writes.ops[index]
            if (op.kind != OP_WRITE_RECORDS or op.body != NULL or op.file.gone or op.file.fd < 0
                    or op.file.direct_fd < 0 or op.file.is_unsynced or op.file.is_reserved
                    or op.file.is_block_old):
                return False
            if index == 0 or op.file != writes.ops[index - 1].file:
                all_bytes += whole_blocks(length) + 2 * BLOCK_BYTES
                length = 0
                files += 1
            if op.offset != op.file.written + length:
                return False
            length += op.length
            if not has_room(op.file, length) or all_bytes + length > FLIGHT_BYTES:
                return False
        return files == 1 or files <= self.files_at_once(writes.ops[0].file)

    cdef int files_at_once(self, File* file) noexcept:
        """How many one round may have, as the file system of all data says."""
        if not self.most:
            self.most = FLIGHT_FILES if native_sync_is_for_all(file.fd) else 1
        return self.most

    cdef bint begin(self, Round* round, int event_fd) noexcept:
        """Begins a round that has its syncs, too; `event_fd` becomes readable when a write of it is
        over. False: it is for the writing thread."""
        cdef OpList* syncs = &round.stages[STAGE_SYNC]
        # Without a sync no client waits.
        if not syncs.count or round.whole or not self.has_memory():
            return False
        if not enter_if_open():
            return False
        # Inside the gate: while it is shut, files lose their space ahead.
        if not self.suits(round) or not self.covers(syncs, &round.stages[STAGE_WRITE]):
            leave()
            return False
        self.round = round
        self.put(&round.stages[STAGE_WRITE])
        self.flight.event_fd = event_fd
        if not begin_flight(self.flight):
            self.round = NULL
            self.is_refused(self.flight.error)
        leave()
        return self.round != NULL

    cdef bint covers(self, OpList* syncs, OpList* writes) noexcept:
        """Whether all files that are to be synced are written: a sync of another one is for the
        thread. (Each that is written is to be synced.)"""
        cdef int index, other
        for index in range(syncs.count):
            for other in range(writes.count):
                if writes.ops[other].file == syncs.ops[index].file:
                    break
            else:
                return False
        return True

    cdef bint has_memory(self) noexcept:
        if self.flight == NULL:
            self.flight = <Flight*> calloc(1, sizeof(Flight))
        if self.blocks == NULL:
            self.blocks = <uint8_t*> aligned_alloc(
                BLOCK_BYTES, FLIGHT_BYTES + 2 * BLOCK_BYTES)
        return self.flight != NULL and self.blocks != NULL

    cdef int put(self, OpList* writes) noexcept:
        """Puts together what each file gets."""
        cdef Write* write = NULL
        cdef Op* op
        cdef size_t used = 0
        cdef int index
        self.flight.count = 0
        for index in range(writes.count):
            op = &writes.ops[index]
            seal_records(op)
            if write == NULL or op.file != write.ops.file:
                write = &self.flight.writes[self.flight.count]
                self.flight.count += 1
                write.ops = op
                write.count = 0
            write.count += 1
        for index in range(self.flight.count):
            write = &self.flight.writes[index]
            write.blocks = self.blocks + used
            write.length = put_blocks(write.ops, write.count, write.blocks)
            used += write.length
        return 0

    cdef Round* ended(self, bint* again) noexcept:
        """The round, if it is over; NULL if not, or if there is none. `again`: the thread has to
        write it, since the kernel would have had to wait, or has no such writes here."""
        cdef Round* round = self.round
        cdef int index
        cdef int error
        if round == NULL or not is_over(self.flight):
            return NULL
        self.round = NULL
        error = self.flight.error
        again[0] = self.is_refused(error)
        if error == 0:
            self.rounds += 1
            for index in range(self.flight.count):
                # Counts it.
                is_frequent(self.flight.writes[index].ops.file, self.flight.writes[index].length)
        elif not again[0]:
            round.error = error
            round.failed_kind = OP_WRITE_RECORDS
            round.failed_path = self.flight.failed.file.path
        return round

    cdef bint is_refused(self, int error) noexcept:
        """Whether the thread may have more luck: the kernel would have had to wait, or has no such
        writes here, and then it is not asked again."""
        if error == EINVAL or error == EOPNOTSUPP or error == ENOSYS:
            self.files = 0
            return True
        return error == EAGAIN

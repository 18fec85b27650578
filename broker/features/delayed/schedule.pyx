# cython: language_level=3
"""The timing index: which delayed message is due next, in constant memory.

New entries gather in a heap. A full heap is sorted and becomes a run; once the records it speaks of
are synced, the run is written to a file of its own and only a few entries of it stay in memory. The
next message due is the earliest of the heap's and the runs' heads.

Nothing here has to be durable by itself: a record in the log carries its due time, so that what is
in no sound run is found again by reading the segments concerned (`restart`).
"""

import heapq
import logging
import os

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, qsort, realloc
from libc.string cimport memcpy, strdup

from broker.features.delayed.cancelled import Cancelled
from broker.features.delayed.entry cimport (
    ENTRY_BYTES, Entry, RUN_HEADER_BYTES, RUN_MAGIC, RUN_VERSION, RunHeader, entry_check,
    header_check, is_before,
)
from broker.features.delayed.run cimport BUFFERED, LATER, NONE, Run, THERE
from broker.settings.bounds import DEFAULTS
from broker.store.commit.contracts cimport Dirty
from broker.store.commit.persister cimport Persister
from broker.store.files.disk cimport file_new
from broker.store.files.operation cimport OP_MKDIR, OP_READ, OP_RMDIR, OP_UNLINK, OP_WRITE, Op
from broker.store.files.io_thread cimport (
    Round, STAGE_MAKE, STAGE_REMOVE, STAGE_WRITE, round_add, round_new,
)
from broker.store.log.segments import not_needed

log = logging.getLogger("leveret.delayed")


cdef int compare(const void* one, const void* other) noexcept nogil:
    return -1 if is_before(<const Entry*> one, <const Entry*> other) else 1


def in_order(bytes entries) -> bytes:
    """The same entries, sorted."""
    cdef bytes found = (<char*> entries)[:len(entries)]
    cdef char* start = <char*> found
    cdef size_t count = len(entries) // ENTRY_BYTES
    # A copy that no other code refers to yet.
    with nogil:
        qsort(start, count, ENTRY_BYTES, compare)
    return found


cdef class Schedule(Dirty):
    """`wake()` is called when an entry that had to be read is there. `table_max` entries make a
    run; `cancelled_max` may be cancelled and not yet due."""

    def __init__(self, Persister persister, str directory, uint64_t incarnation, bint durable, wake,
                 uint32_t table_max=16384, cancelled_max=DEFAULTS.delayed_cancelled):
        self.persister = persister
        self.directory = directory
        self.incarnation = incarnation
        self.durable = durable
        self.wake = wake
        self.table_max = table_max
        self.heads = []
        self.unread = []
        self.forming = []
        self.writing = []
        self.leaving = []
        self.cancelled = Cancelled(cancelled_max)
        self.next_number = 1

    def __dealloc__(self):
        free(self.near)

    @property
    def runs(self) -> int:
        return len(self.heads) + len(self.unread)

    @property
    def in_memory(self) -> int:
        """Entries that are in no run."""
        return self.near_count

    # -- entries in memory -------------------------------------------------------------------------

    cdef int add(self, Entry* entry) except -1:
        self.push(entry)
        if self.near_count >= self.table_max:
            self.spill()
        return 0

    cdef int push(self, Entry* entry) except -1:
        cdef Entry* grown
        cdef uint32_t at, above
        cdef uint32_t capacity = self.near_capacity
        if self.near_count == capacity:
            capacity = capacity * 2 if capacity else 32
            grown = <Entry*> realloc(self.near, <size_t> capacity * sizeof(Entry))
            if grown == NULL:
                raise MemoryError("no memory for the timing index")
            self.near = grown
            self.near_capacity = capacity
        at = self.near_count
        self.near_count += 1
        while at:
            above = (at - 1) // 2
            if not is_before(entry, &self.near[above]):
                break
            self.near[at] = self.near[above]
            at = above
        self.near[at] = entry[0]
        return 0

    cdef void sift_down(self, uint32_t at) noexcept:
        cdef Entry moved = self.near[at]
        cdef uint32_t below
        while True:
            below = 2 * at + 1
            if below >= self.near_count:
                break
            if below + 1 < self.near_count and is_before(&self.near[below + 1], &self.near[below]):
                below += 1
            if not is_before(&self.near[below], &moved):
                break
            self.near[at] = self.near[below]
            at = below
        self.near[at] = moved

    def spill(self) -> None:
        """The entries in memory become a run, which is written when their records are synced."""
        cdef Run run
        if self.near_count == 0:
            return
        run = Run(self.next_number, self.near_count)
        self.next_number += 1
        run.array = self.near
        qsort(run.array, run.count, sizeof(Entry), compare)
        self.near = NULL
        self.near_count = self.near_capacity = 0
        self.enter(run)
        self.forming.append(run)
        self.persister.after_round(self.form, True)

    def form(self) -> None:
        """The records of the oldest run that has no file are on disk: the run may follow them."""
        cdef Run run = self.forming.pop(0)
        if not run.finished and not self.deleted:
            self.writing.append(run)
            self.persister.add(self)

    # -- the next one ------------------------------------------------------------------------------

    cdef int enter(self, Run run) except -1:
        """Puts a run among the heads by its next entry; a run without any ends."""
        cdef Entry entry
        cdef int found = run.head(&entry)
        if found == THERE:
            heapq.heappush(
                self.heads, (entry.due, entry.segment, entry.position, run.number, run))
        elif found == LATER:
            self.unread.append(run)
            if self.reading is None:
                self.ask(run)
        else:
            self.finish_run(run)
        return 0

    cdef int peek(self, Entry* entry) except -1:
        """The entry that is due next. LATER: `wake` is called when it is known."""
        cdef Run run
        cdef Entry other
        if self.unread:
            return LATER
        if not self.heads:
            if self.near_count == 0:
                return NONE
            entry[0] = self.near[0]
            return THERE
        run = <Run> self.heads[0][4]
        # What was a head once stays in the run's memory until it is popped.
        run.head(&other)
        entry[0] = self.near[0] if self.near_count and is_before(&self.near[0], &other) else other
        return THERE

    cdef int pop(self) except -1:
        """Takes away the entry that `peek` showed."""
        cdef Run run
        cdef Entry other
        if self.heads:
            run = <Run> self.heads[0][4]
            run.head(&other)
            if self.near_count == 0 or is_before(&other, &self.near[0]):
                heapq.heappop(self.heads)
                run.at += 1
                self.enter(run)
                return 0
        self.near_count -= 1
        self.near[0] = self.near[self.near_count]
        if self.near_count:
            self.sift_down(0)
        return 0

    def snapshot(self) -> list:
        """Everything that is scheduled now, for `Browser`: (entries in memory, is it sorted) or
        (path of a run, its next entry, its count)."""
        cdef Run run
        found = []
        if self.near_count:
            found.append(
                ((<char*> self.near)[:<size_t> self.near_count * ENTRY_BYTES], False))
        for run in [head[4] for head in self.heads] + self.unread:
            if run.array != NULL:
                found.append((
                    (<char*> (run.array + run.at))[:<size_t> (run.count - run.at) * ENTRY_BYTES],
                    True))
            elif run.file != NULL:
                found.append((os.fsdecode(<bytes> run.file.path), run.at, run.count))
        return found

    def cancel(self, uint32_t segment, uint32_t position) -> None:
        """The message at this place is not to be released any more."""
        cdef uint32_t at, above
        cdef Entry moved
        self.struck += 1
        for at in range(self.near_count):
            if self.near[at].segment == segment and self.near[at].position == position:
                break
        else:
            if not self.strike(segment, position):
                self.cancelled.add(segment, position)
            return
        self.near_count -= 1
        moved = self.near[self.near_count]
        if at == self.near_count:
            return
        while at:
            above = (at - 1) // 2
            if not is_before(&moved, &self.near[above]):
                break
            self.near[at] = self.near[above]
            at = above
        self.near[at] = moved
        self.sift_down(at)

    cdef bint strike(self, uint32_t segment, uint32_t position) except -1:
        """Takes an entry out of a run that has no file yet. Its record may never be written, and
        its place be given to another message."""
        cdef Run run
        cdef uint32_t at
        for head in self.heads:
            run = <Run> head[4]
            if run.array == NULL or run.on_disk:
                # A round has taken it as it is, behind its records.
                continue
            for at in range(run.at, run.count):
                if run.array[at].segment == segment and run.array[at].position == position:
                    run.array[at].length = 0
                    if at == run.at:
                        self.reread(run)
                    return True
        return False

    # -- files -------------------------------------------------------------------------------------

    cdef int ask(self, Run run) except -1:
        """Has the reader thread fetch the next entries of a run."""
        cdef Round* round = round_new()
        cdef Op* op
        cdef uint32_t count = run.count - run.at
        if count > BUFFERED:
            count = BUFFERED
        self.persister.files.use(round, run.file)
        op = round_add(round, STAGE_WRITE, OP_READ, run.file)
        op.data = <uint8_t*> run.buffer
        op.length = <size_t> count * ENTRY_BYTES
        op.offset = RUN_HEADER_BYTES + <uint64_t> run.at * ENTRY_BYTES
        self.reading = run
        self.persister.read(round, self)
        return 0

    cdef int read_done(self, Round* round) except -1:
        cdef Op* op = &round.stages[STAGE_WRITE].ops[0]
        cdef Run run = self.reading
        self.reading = None
        if self.deleted:
            self.remove_waiting()
            return 0
        if round.error:
            # A disk that does not answer says nothing about the run: what comes next waits for it.
            self.persister.failed_reads.add(
                f"{self.directory}/due.{run.number:010d}", os.strerror(round.error),
                self.ask_again)
            return 0
        run.buffer_from = run.at
        run.buffer_count = <uint32_t> (op.done // ENTRY_BYTES)
        self.unread.remove(run)
        if run.buffer_count == 0:
            # Its messages are still in the log; the next start finds that they are in no run.
            self.lost(run)
            self.finish_run(run)
        else:
            self.enter(run)
        if self.unread and self.reading is None:
            self.ask(self.unread[0])
        if not self.unread:
            self.wake()
        return 0

    def ask_again(self) -> None:
        """A while after a read failed."""
        if self.unread and self.reading is None:
            self.ask(self.unread[0])

    def lost(self, Run run) -> None:
        log.error(
            "%s/due.%010d ends before its time; its messages are scheduled again at the next start",
            self.directory, run.number)

    cdef int freeze(self, Round* round) except -1:
        cdef Run run
        for run in self.writing:
            if not run.on_disk:
                self.write_run(round, run)
        return 0

    cdef int write_run(self, Round* round, Run run) except -1:
        """The operations that write what is left of a run."""
        cdef Op* op
        cdef uint8_t* data
        cdef RunHeader* header
        cdef Entry* entries
        cdef uint32_t i
        cdef uint32_t left
        cdef size_t length
        run.compact()
        left = run.count
        length = RUN_HEADER_BYTES + <size_t> left * ENTRY_BYTES
        run.on_disk = True
        run.file = file_new(f"{self.directory}/due.{run.number:010d}")
        data = <uint8_t*> malloc(length)
        if data == NULL:
            raise MemoryError("no memory for the timing index")
        header = <RunHeader*> data
        header.magic = RUN_MAGIC
        header.version = RUN_VERSION
        header.incarnation = self.incarnation
        header.number = run.number
        header.count = left
        header.reserved = 0
        header.check = header_check(header)
        entries = <Entry*> (data + RUN_HEADER_BYTES)
        memcpy(entries, run.array, <size_t> left * ENTRY_BYTES)
        for i in range(left):
            entries[i].check = entry_check(&entries[i], self.incarnation, run.number)
        if not self.directory_made:
            self.directory_made = True
            encoded = os.fsencode(self.directory)
            op = round_add(round, STAGE_MAKE, OP_MKDIR, NULL)
            op.path = strdup(<char*> encoded)
            if self.durable:
                self.persister.note_directory(os.path.dirname(self.directory))
        self.persister.files.use(round, run.file)
        op = round_add(round, STAGE_WRITE, OP_WRITE, run.file)
        op.data = data
        op.owns_data = True
        op.length = length
        if self.durable:
            self.persister.note_directory(self.directory)
            self.persister.note_written(run.file, False)
        self.persister.bytes_written += length
        return 0

    cdef int written(self, Round* round) except -1:
        cdef Run run
        cdef list runs = self.writing
        self.writing = []
        for run in runs:
            if not run.on_disk:
                # It came while the round was in flight.
                self.writing.append(run)
                continue
            run.drop_array()
            if run.finished:
                self.leaving.append(run)
            elif not self.deleted:
                run.load(run.at, BUFFERED)
                if run.buffer_count == 0:
                    self.reread(run)
        self.remove_waiting()
        return 0

    def reread(self, Run run) -> None:
        """A run's head has to come from the disk."""
        self.heads = [head for head in self.heads if head[4] is not run]
        heapq.heapify(self.heads)
        self.enter(run)

    cdef int finish_run(self, Run run) except -1:
        """Every entry of a run was taken: its file goes."""
        run.finished = True
        if run.file != NULL and run.array == NULL:
            self.leaving.append(run)
            self.remove_waiting()
        return 0

    def remove_waiting(self) -> None:
        """Removes the files of finished runs, those in use later."""
        cdef Run run
        cdef Round* round
        cdef Op* op
        cdef list runs = self.leaving
        self.leaving = []
        for run in runs:
            if run.file.busy:
                self.leaving.append(run)
                continue
            round = round_new()
            self.persister.forget(run.file)
            round_add(round, STAGE_REMOVE, OP_UNLINK, run.file)
            run.file = NULL
            self.persister.background.remove(round)
        if self.leaving:
            self.persister.retry_later(self)
        elif self.deleted and self.directory_made and self.reading is None and not self.writing:
            self.directory_made = False
            self.persister.forget_directory(self.directory)
            round = round_new()
            encoded = os.fsencode(self.directory)
            op = round_add(round, STAGE_REMOVE, OP_RMDIR, NULL)
            op.path = strdup(<char*> encoded)
            self.persister.background.remove(round)

    cdef int retry(self) except -1:
        self.remove_waiting()
        return 0

    def delete(self) -> None:
        """The exchange is gone: so are its entries, in memory and on disk."""
        cdef Run run
        self.deleted = True
        # It is the holding's method, and the holding has this schedule: a circle.
        self.wake = not_needed
        self.near_count = 0
        for run in [head[4] for head in self.heads] + self.unread:
            run.finished = True
            if run.file != NULL and run.array == NULL:
                self.leaving.append(run)
        self.heads = []
        self.unread = []
        self.cancelled = Cancelled(self.cancelled.most)
        self.remove_waiting()

# cython: language_level=3
"""The store's work that has no waiting client: a thread of its own removes files, writes small
files and frees disk space.
"""

import logging
import os

from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy, strdup

from broker.kernel.clock cimport monotonic_ns
from broker.store.commit.contracts cimport Dirty
from broker.store.files.disk cimport file_free
from broker.store.files.operation cimport OP_MKDIR, OP_UNLINK, OP_WRITE_FILE, Op
from broker.store.files.io_thread cimport (
    IoThread, Round, SLICE_NS, STAGE_REMOVE, round_add, round_free, round_new,
)
from broker.store.files.planted cimport planted

log = logging.getLogger("leveret.store")


cdef int unlink_all(Round* round, list paths) except -1:
    """Adds the removal of these files."""
    cdef Op* op
    if planted(b"keep acks"):
        return 0
    for path in paths:
        op = round_add(round, STAGE_REMOVE, OP_UNLINK, NULL)
        encoded = os.fsencode(path)
        op.path = strdup(<char*> encoded)
    return 0


cdef class Background:
    """Stores with something left to do, and the thread that does it. `root` is the data directory.
    """

    def __init__(self, str root):
        self.root = root
        self.remover = IoThread("remover")
        self.removing = {}
        self.attended = []
        self.owners = {}
        self.makes_holes = True
        self.behind = {}
        self.orphans = []
        self.flying_orphans = []

    cdef int attend(self, Dirty store) except -1:
        """The store has work in the background: it is called once everything is synced."""
        if not store.attended:
            store.attended = True
            self.attended.append(store)
        return 0

    cdef int work(self) except -1:
        """Everything is synced: calls the stores that are listed."""
        cdef Dirty store
        cdef list stores = self.attended
        if stores:
            self.attended = []
            for store in stores:
                store.attended = False
                if store.background():
                    self.attend(store)
        return 0

    cdef int remove_for(self, Round* round, Dirty owner) except -1:
        """Passes a round of deferred work to the thread; `owner.background_done` is called after
        it.
        """
        self.owners[<size_t> round] = owner
        self.remover.submit(round)
        return 0

    cdef int remove(self, Round* round) except -1:
        """Passes a round of removals to the thread."""
        self.remover.submit(round)
        return 0

    cdef int take_back(self) except -1:
        """The thread's eventfd is readable. What does not fit into a slice comes in the next turn,
        in the same order."""
        cdef uint64_t end = monotonic_ns() + SLICE_NS
        cdef Dirty owner
        cdef Round* round
        self.remover.drain()
        round = self.remover.finished()
        while round != NULL:
            owner = self.owners.pop(<size_t> round, None)
            if owner is not None:
                owner.background_done(round)
            free_files(round)
            self.removing.pop(round.number, None)
            row = self.behind.pop(round.number, None)
            if row is not None:
                # What the removal left behind can go after the next thorough sync.
                self.orphans.append(row)
            round_free(round)
            if monotonic_ns() > end:
                # Readable again, whether there is more or not.
                os.eventfd_write(self.remover.event_fd, 1)
                break
            round = self.remover.finished()
        return 0

    cdef bint is_removed(self, uint64_t number) except? True:
        """Whether every removal up to this one has ended."""
        return not self.removing or next(iter(self.removing)) > number

    # -- files that go behind others ---------------------------------------------------------------

    def leave_behind(self, uint64_t removal, str directory, list paths):
        """Removes these files of a directory when the removal with this number is on disk; without
        paths, only waits for that."""
        self.behind[removal] = (directory, paths)

    def outlive(self, str directory, list paths):
        """As `leave_behind`, where the removal is done."""
        self.orphans.append((directory, paths))

    def left_behind(self, str directory):
        """The directory is removed as a whole. Returns its files whose removal was still
        pending."""
        paths = []
        for number, (place, names) in list(self.behind.items()):
            if place == directory:
                paths += names
                del self.behind[number]
        for rows in (self.orphans, self.flying_orphans):
            paths += [path for row in rows if row[0] == directory for path in row[1]]
            rows[:] = [row for row in rows if row[0] != directory]
        return paths

    cdef bint has_orphans(self) noexcept:
        """Whether files wait for the sync of a removal."""
        return len(self.orphans) > 0

    cdef list take_orphans(self):
        """The directories that the round at hand has to sync before `remove_orphans`."""
        self.flying_orphans, self.orphans = self.orphans, []
        return [directory for directory, _ in self.flying_orphans]

    cdef int remove_orphans(self) except -1:
        """The directories of `take_orphans` are synced: the files go."""
        cdef Round* round
        cdef list rows = self.flying_orphans
        self.flying_orphans = []
        paths = [path for row in rows for path in row[1]]
        if not paths:
            return 0
        round = round_new()
        round.number = self.removal_begins()
        unlink_all(round, paths)
        self.remover.submit(round)
        return 0

    cdef uint64_t removal_begins(self) except 0:
        """Files are settled and will be removed; the number to end it with."""
        self.removals += 1
        self.removing[self.removals] = None
        return self.removals

    def write_files(self, str directory, dict files):
        """Writes whole small files (names to bytes) in the background, unsynced, after making the
        directory."""
        cdef Round* round = round_new()
        cdef Op* op = round_add(round, STAGE_REMOVE, OP_MKDIR, NULL)
        cdef bytes data
        encoded = os.fsencode(directory)
        op.path = strdup(<char*> encoded)
        for name, data in files.items():
            op = round_add(round, STAGE_REMOVE, OP_WRITE_FILE, NULL)
            encoded = os.fsencode(f"{directory}/{name}")
            op.path = strdup(<char*> encoded)
            op.length = len(data)
            op.data = <uint8_t*> malloc(op.length + 1)
            if op.data == NULL:
                raise MemoryError("no memory for a file to write")
            op.owns_data = True
            memcpy(op.data, <char*> data, op.length)
        self.remover.submit(round)

    def no_holes(self):
        """The file system cannot give back parts of files."""
        if self.makes_holes:
            self.makes_holes = False
            log.warning(
                "%s: this file system cannot give back parts of a file (no holes): the space of "
                "a segment comes free when all of it is settled", self.root)


cdef void free_files(Round* round) noexcept:
    cdef int i
    for i in range(round.stages[STAGE_REMOVE].count):
        file_free(round.stages[STAGE_REMOVE].ops[i].file)

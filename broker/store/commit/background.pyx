# cython: language_level=3
"""The store's work that has no waiting client: a thread of its own removes files, writes small
files and frees disk space.
"""

import logging
import os

from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy, strdup

from broker.store.files.operation cimport OP_MKDIR, OP_UNLINK, OP_WRITE_FILE, Op
from broker.store.files.io_thread cimport IoThread, Round, STAGE_REMOVE, round_add, round_new
from broker.store.files.open_files cimport OpenFiles
from broker.store.files.planted cimport planted

log = logging.getLogger("leveret.store")


cdef class Dirty:
    """A store with unwritten data: that of a queue."""

    cdef int take_up(self) except -1:
        """A round begins, and what is `behind` others is frozen in its last part: that writes what
        there is now, since the others may write later things only in the next round."""
        return 0

    cdef int freeze(self, Round* round) except -1:
        """Adds the operations that write everything unwritten; what they point to stays unchanged
        until `written`."""
        raise NotImplementedError

    cdef int written(self, Round* round) except -1:
        raise NotImplementedError

    cdef int read_done(self, Round* round) except -1:
        raise NotImplementedError

    cdef int retry(self) except -1:
        """A round is over: whatever had to wait for files in flight can be tried again."""
        raise NotImplementedError

    cdef bint background(self) except? True:
        """All data written so far is synced: deferred work may be done. Returns whether to be
        called again after the next such round."""
        raise NotImplementedError

    cdef int background_done(self, Round* round) except -1:
        """A round given to `remove_for` is over."""
        raise NotImplementedError


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


cdef class Background(OpenFiles):
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

    cdef int work_in_background(self) except -1:
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

    cdef int background_over(self, Round* round) except -1:
        """A round of the remover has ended: calls its owner, if it has one."""
        cdef Dirty owner = self.owners.pop(<size_t> round, None)
        if owner is not None:
            owner.background_done(round)
        return 0

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

    cdef int removed(self, uint64_t number) except -1:
        """A removal has ended; what it left behind can go after the next thorough sync."""
        row = self.behind.pop(number, None)
        if row is not None:
            self.orphans.append(row)
        return 0

    cdef int remove_orphans(self) except -1:
        """The directories are synced."""
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

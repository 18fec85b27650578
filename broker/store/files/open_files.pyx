# cython: language_level=3
"""Which of the store's files are open: the most recently used ones, up to a limit."""

from libc.stdint cimport uint64_t

from broker.store.files.disk cimport file_close
from broker.store.files.operation cimport File, OP_OPEN
from broker.store.files.io_thread cimport Round, STAGE_MAKE, round_add


cdef class OpenFiles:
    """The list of open files, oldest use first out."""

    def __init__(self, uint64_t limit):
        self.limit = limit

    cdef int use(self, Round* round, File* file) except -1:
        """Makes sure that a file is open in the later stages of the round, and notes that it is
        used."""
        self.used += 1
        if file.listed:
            self.unlist(file)
        else:
            self.count += 1
        if file.fd < 0:
            # Where another round in flight opens it too, the second finds it open.
            round_add(round, STAGE_MAKE, OP_OPEN, file)
        file.listed = True
        file.newer = NULL
        file.older = self.newest
        if self.newest != NULL:
            self.newest.newer = file
        self.newest = file
        if self.oldest == NULL:
            self.oldest = file
        return 0

    cdef void unlist(self, File* file) noexcept:
        if file.newer != NULL:
            file.newer.older = file.older
        else:
            self.newest = file.older
        if file.older != NULL:
            file.older.newer = file.newer
        else:
            self.oldest = file.newer
        file.listed = False

    cdef void forget(self, File* file) noexcept:
        """The file is about to be closed or removed."""
        if file.listed:
            self.unlist(file)
            self.count -= 1

    cdef void close_some(self) noexcept:
        """Closes the files that were not used for longest; one with unsynced bytes is never
        closed."""
        cdef File* file = self.oldest
        cdef File* newer
        while file != NULL and self.count > self.limit:
            newer = file.newer
            if file.busy == 0 and not file.dirty and file.fd >= 0:
                self.forget(file)
                file_close(file)
            file = newer

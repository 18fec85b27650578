# cython: language_level=3
"""Which of the store's files are open: the most recently used ones, up to a limit."""

from libc.stdint cimport uint64_t

from broker.store.files.disk cimport file_close
from broker.store.files.file_list cimport list_file, unlist, unlist_all
from broker.store.files.operation cimport File, FilePlace, OP_OPEN
from broker.store.files.io_thread cimport Round, STAGE_MAKE, round_add


cdef class OpenFiles:
    """The list of open files, oldest use first out."""

    def __init__(self, uint64_t limit):
        self.limit = limit

    def __dealloc__(self):
        unlist_all(&self.files)

    @property
    def count(self):
        return self.files.count

    cdef int use(self, Round* round, File* file) except -1:
        """Makes sure that a file is open in the later stages of the round, and notes that it is
        used."""
        self.used += 1
        if file.fd < 0:
            # Where another round in flight opens it too, the second finds it open.
            round_add(round, STAGE_MAKE, OP_OPEN, file)
        unlist(&file.opened)
        list_file(&self.files, &file.opened, file)
        return 0

    cdef void forget(self, File* file) noexcept:
        """The file is about to be closed or removed."""
        unlist(&file.opened)

    cdef void close_some(self) noexcept:
        """Closes the files that were not used for longest; one with unsynced bytes is never
        closed."""
        cdef FilePlace* place = self.files.first
        cdef File* file
        while place != NULL and self.files.count > self.limit:
            file = place.file
            place = place.behind
            if file.busy == 0 and not file.dirty and file.fd >= 0:
                self.forget(file)
                file_close(file)

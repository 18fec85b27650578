from libc.stdint cimport uint64_t

from broker.store.commit.contracts cimport Dirty
from broker.store.files.io_thread cimport IoThread, Round


cdef int unlink_all(Round* round, list paths) except -1


cdef class Background:
    cdef readonly str root
    cdef readonly IoThread remover
    cdef dict removing              # numbers of removals that have not ended, oldest first
    cdef list attended              # stores with work in the background
    cdef dict owners                # address of a round -> the store that it was made for
    cdef readonly uint64_t removals  # number of the last removal that began
    cdef dict behind                # number of a removal -> (directory, paths that go after it)
    cdef list orphans               # such rows, the removal done and not yet known to be on disk
    cdef list flying_orphans        # rows whose directories the round in flight syncs
    cdef public bint makes_holes    # False once the file system refused to give back parts of files

    cdef int attend(self, Dirty store) except -1
    cdef int work(self) except -1
    cdef int remove(self, Round* round) except -1
    cdef int remove_for(self, Round* round, Dirty owner) except -1
    cdef int take_back(self) except -1
    cdef bint is_removed(self, uint64_t number) except? True
    cdef bint has_orphans(self) noexcept
    cdef list take_orphans(self)
    cdef int remove_orphans(self) except -1
    cdef uint64_t removal_begins(self) except 0

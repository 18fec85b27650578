from libc.stdint cimport uint64_t

from broker.store.files.io_thread cimport IoThread, Round
from broker.store.files.open_files cimport OpenFiles


cdef class Dirty:
    cdef bint dirty
    cdef bint comes_first        # what it writes is referred to by others
    cdef bint attended              # listed for work in the background
    cdef bint behind                # refers to data of other stores: it is written after them
    cdef bint waits_for_files       # listed for `retry`
    cdef object __weakref__

    cdef int take_up(self) except -1
    cdef int freeze(self, Round* round) except -1
    cdef int written(self, Round* round) except -1
    cdef int read_done(self, Round* round) except -1
    cdef int retry(self) except -1
    cdef bint background(self) except? True
    cdef int background_done(self, Round* round) except -1


cdef int unlink_all(Round* round, list paths) except -1


cdef class Background(OpenFiles):
    cdef readonly str root
    cdef readonly IoThread remover
    cdef dict removing              # numbers of removals that have not ended, oldest first
    cdef list attended              # stores with work in the background
    # Address of a round -> its owner, which is called at its end. A thread writes into the owner's
    # memory: this reference keeps it alive until then.
    cdef dict owners
    cdef uint64_t removals          # number of the last removal that began
    cdef dict behind                # number of a removal -> (directory, paths that go after it)
    cdef list orphans               # such rows, the removal done and not yet known to be on disk
    cdef list flying_orphans        # rows whose directories the round in flight syncs
    cdef public bint makes_holes    # False once the file system refused to give back parts of files

    cdef int attend(self, Dirty store) except -1
    cdef int work_in_background(self) except -1
    cdef int remove_for(self, Round* round, Dirty owner) except -1
    cdef int removed(self, uint64_t number) except -1
    cdef int remove_orphans(self) except -1
    cdef uint64_t removal_begins(self) except 0
    cdef int background_over(self, Round* round) except -1

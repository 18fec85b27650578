from broker.store.files.io_thread cimport Round


cdef class Dirty:
    cdef bint dirty                 # listed for the round being gathered
    cdef bint has_acks              # listed for the next round that has acks
    cdef bint comes_first           # what it writes is referred to by others
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

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from broker.kernel.large_body cimport LargeBody
from broker.store.commit.contracts cimport Dirty
from broker.store.files.operation cimport File
from broker.store.files.io_thread cimport IoThread, Round


cdef class ContentFile(Dirty):
    cdef ContentFiles files
    cdef object tell
    cdef File* file
    cdef uint8_t* block              # what waits to be written, of BLOCK bytes
    cdef size_t filled
    cdef readonly uint64_t length    # of the whole body
    cdef uint64_t written            # bytes handed to the thread
    cdef uint32_t flying             # rounds of this file with the thread
    cdef readonly int error          # errno of the first operation that failed
    cdef readonly bint whole         # the body was read back
    cdef bint closing
    cdef LargeBody body              # None until it is read back

    cdef int add(self, const uint8_t* data, size_t length) except -1
    cdef int hand_over(self) except -1
    cdef int submit(self, Round* round) except -1
    cdef int read_back(self) except -1
    cdef int done(self, Round* round) except -1
    cdef int end(self) except -1
    cdef int close_when_idle(self) except -1


cdef class ContentFiles:
    cdef readonly IoThread thread
    cdef str directory
    cdef object under_pressure
    cdef set open
    cdef object waiting              # those that are received whole and not read back, in order
    cdef ContentFile reading         # the one whose body is in memory
    cdef public uint64_t limit

    cdef ContentFile begin(self, uint64_t length, tell)
    cdef int ask(self, ContentFile content) except -1
    cdef int ended(self, ContentFile content) except -1

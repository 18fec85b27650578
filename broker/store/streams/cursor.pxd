from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from broker.kernel.buffer cimport Buffer
from broker.kernel.message cimport Message
from broker.store.commit.contracts cimport Dirty
from broker.store.files.operation cimport File
from broker.store.files.shared_headers cimport Front, Known
from broker.store.log.large_record cimport LargeRecord
from broker.store.streams.store cimport StreamStore
from broker.store.streams.summary cimport Summary


# What StreamCursor.peek returns.
cdef enum:
    AT_END = 0
    FOUND = 1
    WAIT = 2
    LATER = 3                    # many segments were passed over: look again in the next turn


cdef class StreamCursor(Dirty):
    cdef readonly StreamStore store
    cdef object wake                 # called when what `peek` waited for is there
    cdef readonly uint64_t offset    # messages below it are stepped over
    cdef int64_t from_time           # and those that are older than this
    cdef Summary segment             # being read, or None
    cdef uint32_t position
    cdef uint32_t record_length      # of the record that `peek` showed
    cdef uint8_t* data
    cdef size_t capacity
    cdef size_t length
    cdef uint32_t data_position
    cdef uint32_t before             # how many bytes in front of the position are read, too
    cdef Known known                 # the headers in `data` that records shared last
    cdef Buffer joined               # the properties of a message that shares
    cdef LargeRecord large           # one that has a large body; None until there is one
    cdef bint reading
    cdef bint short                  # the file ended before what was asked for
    cdef public bint passing         # `passes` is asked for sealed segments
    cdef readonly uint64_t segments_skipped
    cdef uint32_t skips              # in this call of `peek`
    cdef readonly uint32_t cold_run  # how often it read on in the object store since it was placed
    cdef public str trouble          # why what it waits for cannot be had, or None

    cdef int go_to(self, uint64_t offset) except -1
    cdef int go_to_time(self, int64_t timestamp) except -1
    cdef int peek(self, Message* message, uint64_t* offset) except -1
    cdef void step(self) noexcept
    cdef bint passes(self, Summary segment) except -1
    cdef bint place(self) except -1
    cdef int pass_segments(self) except -1
    cdef bint next_segment(self) except -1
    cdef bint complete(self, Message* message, const Front* front) except -1
    cdef uint8_t* record(self, uint32_t limit) except? NULL
    cdef uint8_t* large_record(self, uint8_t* record, uint32_t front) except? NULL
    cdef int pass_over(self) except -1
    cdef int read_begins(self) except -1
    cdef int read_ends(self, bint wakes) except -1
    cdef int fetch(self, size_t wanted) except -1
    cdef File* file_with(self, uint32_t begin, size_t wanted) except? NULL
    cdef File* cold_file(self, uint32_t begin, size_t wanted) except? NULL
    cdef int read_from(self, File* file, uint32_t begin, size_t wanted) except -1
    cdef void rest(self) noexcept

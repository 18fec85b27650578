from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from broker.kernel.message cimport Message
from broker.store.commit.contracts cimport Dirty
from broker.store.commit.persister cimport Persister
from broker.store.files.operation cimport File
from broker.store.files.io_thread cimport Round
from broker.store.log.segments cimport QueueDirectory, Segments
from broker.store.streams.offsets cimport ConsumerOffsets, TrackedOffset
from broker.store.streams.summary cimport Summary


# Tells a summary which filter values a message has, by its properties.
ctypedef int (*note_values)(Summary summary, const uint8_t* properties,
                            uint32_t length) except -1


# What the headers of messages begin with, and where a whole record with it stands: `store` and
# `segment` say in what. `back`: how far back from the next record, 0 if it may not refer there.
cdef struct SharedHeaders:
    uint64_t store
    uint32_t segment
    uint32_t position
    uint16_t length
    uint16_t back


cdef class StreamStore(Dirty):
    cdef Persister persister
    cdef QueueDirectory folder
    cdef Segments segments
    cdef readonly uint64_t incarnation
    cdef readonly bint deleted
    cdef object touch                        # called when messages are synced
    cdef readonly list summaries             # oldest first; the active segment's comes last
    cdef Summary newest                      # the active segment's
    cdef note_values note_message
    cdef readonly ConsumerOffsets offsets
    cdef readonly uint64_t next_offset
    cdef readonly uint64_t total
    cdef readonly uint64_t total_bytes
    cdef readonly uint64_t damaged           # bytes that could not be read
    cdef readonly uint64_t own_segment_size  # 0: the persister's
    cdef int64_t last_timestamp
    # Where the log ends for readers: what lies before it is synced.
    cdef readonly uint64_t safe_offset
    cdef readonly uint32_t safe_number
    cdef uint32_t safe_position
    cdef uint64_t flying_offset
    cdef uint32_t flying_number
    cdef uint32_t flying_position
    cdef list rolled                         # summaries of segments sealed since the last sync
    cdef list unwritten                      # summaries whose meta files are to be written
    cdef list metas_in_flight                # addresses of their files
    cdef list condemned                      # summaries of segments that go at the next sync
    cdef uint32_t reads                      # cursors that wait for the reader thread
    cdef set reading_cursors                 # kept alive meanwhile
    cdef public object listed                # TierList: segments in an object store; None: none yet
    cdef readonly uint64_t tiered_segments   # of the summaries, those that an object holds
    cdef readonly uint64_t tiered_bytes
    cdef readonly uint64_t cold_segments     # of these, those without a file here
    cdef readonly uint64_t cold_bytes
    cdef public object tier                  # fetches them, told of their end; None: no tiers here

    cdef int append(self, Message* message) except -1
    cdef int append_sharing(self, Message* message, const uint8_t* noted, uint32_t noted_length,
                            SharedHeaders* shared) except -1
    cdef int roll(self) except -1
    cdef int ask(self) except -1
    cdef int keep_offset(self, TrackedOffset tracked, uint64_t offset) except -1
    cdef uint32_t limit(self, Summary summary) noexcept
    cdef Py_ssize_t index_of(self, uint64_t offset)
    cdef Py_ssize_t place_of(self, uint32_t segment)
    cdef int note_gap(self, Summary summary, uint32_t position, uint64_t length) except -1
    cdef int drop_oldest(self, Py_ssize_t count) except -1
    cdef int sweep(self) except -1
    cdef int read_begins(self, object cursor) except -1
    cdef int read_ends(self, object cursor) except -1
    cdef int finish_delete(self) except -1
    cdef int write_summaries(self, Round* round) except -1
    cdef int count_tiered(self, Summary summary, int sign) except -1
    cdef int let_go(self, Summary summary) except -1
    cdef int remove_file(self, str name) except -1

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from broker.store.commit.contracts cimport Dirty
from broker.store.commit.persister cimport Persister
from broker.store.files.operation cimport File
from broker.store.files.io_thread cimport Round
from broker.store.files.record cimport AckEntry
from broker.store.files.spans cimport Span


cdef enum:
    FILLING = 0
    FROZEN = 1           # full, waits for the next round
    WRITING = 2
    WRITTEN = 3


cdef enum:
    MIXED = 0xFFFFFFFF


cdef enum:
    TAIL_FULL = 1 << 20          # a tail of this size is frozen


cdef struct Segment:
    uint32_t number
    uint32_t count               # records
    uint32_t settled
    uint32_t length              # position behind the last record
    uint32_t watermark           # delivered up to here, as noted for the acks file
    uint32_t watermark_flying    # delivered up to here, as handed to the writer
    uint32_t watermark_safe      # delivered up to here, as written
    uint32_t recovered_watermark  # records below it may have been delivered before this start
    uint32_t acks_length         # bytes in the acks file, as handed to the writer
    uint64_t removal             # number of its removal, once that began
    uint32_t references          # unread records whose body is shared
    uint32_t referring           # all such records, in a segment of which none was lost
    bint sealed
    bint recovered               # of an earlier run
    bint summarised              # meta.N is written, or nothing can be said
    bint damaged                 # bytes of it could not be read as records
    uint8_t flags                # of all records, or-ed
    uint32_t passed              # records that the cursor has passed
    uint32_t overhead            # of each record; MIXED where they differ
    uint64_t body_bytes          # of all records that were handed to the writer
    uint64_t settled_bytes
    uint64_t holes               # bytes given back to the file system
    uint64_t punch_at            # settled bytes from which it is worth while to make holes
    File* messages
    File* acks
    AckEntry* pending            # entries not yet handed to the writer
    uint32_t pending_count
    uint32_t pending_capacity
    bint pending_listed
    Segment* next_pending
    Span* skips                  # sorted
    uint32_t skip_count
    Segment* next


# A run of records in memory. One block is FILLING: the tail.
cdef struct Block:
    uint8_t* data
    size_t capacity
    size_t length
    Segment* segment
    uint32_t start               # position of data[0]
    uint32_t count
    uint32_t settled
    uint32_t referring           # records whose body is shared
    int state
    uint8_t flags
    uint32_t overhead
    uint64_t body_bytes
    AckEntry* pending            # settled in the tail: acks entries once the tail is written
    uint32_t pending_count
    uint32_t pending_capacity
    Block* next


cdef int push_entry(AckEntry** entries, uint32_t* count, uint32_t* capacity, uint32_t position,
                    uint32_t word) except -1


cdef class Segments(Dirty):
    cdef Persister persister
    cdef object owner_touch      # called when a wait is over
    cdef readonly uint64_t incarnation
    cdef readonly bint durable
    cdef str parent              # the directory of the queues' directories
    cdef bint directory_made
    cdef readonly bint deleted
    cdef bint closing            # no deliveries any more
    cdef public bint keep        # consumers are there: keep what they will read next in memory
    cdef Segment* head
    cdef Segment* active
    cdef Segment* last_found
    cdef Segment* first_pending
    cdef uint32_t next_number
    cdef Block* first_block
    cdef Block* last_block
    cdef Block* tail             # == last_block while it is FILLING, else NULL
    cdef Segment* cursor         # where the next unread record lies
    cdef uint32_t cursor_position
    cdef uint32_t cursor_skip
    cdef bint reading            # the reader thread has work for this queue
    cdef bint waiting_round      # a delivery waits for a watermark
    cdef list removing           # addresses of segments whose files are busy

    cdef uint32_t punching       # a segment's holes are being made

    cdef int roll(self) except -1
    cdef Block* new_tail(self, uint32_t length) except NULL
    cdef Block* room_for(self, uint32_t length) except NULL
    cdef void free_block(self, Block* block) noexcept
    cdef int drop_tail(self) except -1
    cdef Block* block_of(self, Segment* segment, uint32_t position) noexcept
    cdef Segment* find(self, uint32_t number) noexcept
    cdef bint was_read(self, Block* block) noexcept
    cdef int note(self, Segment* segment, uint32_t position, uint32_t word) except -1
    cdef int drop_segment(self, Segment* segment) except -1
    cdef void segment_gone(self, Segment* segment) noexcept
    cdef int remove_segment(self, Segment* segment) except -1
    cdef int remove_waiting(self) except -1
    cdef bint has_no_files(self) noexcept
    cdef int finish_delete(self) except -1
    cdef int remove_directory(self) except -1
    cdef int ensure_directory(self, Round* round) except -1
    cdef File* ensure_file(self, Round* round, Segment* segment, bint acks) except NULL

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from broker.kernel.large_body cimport LargeBody
from broker.kernel.message cimport Message, Place
from broker.store.commit.contracts cimport Dirty
from broker.store.commit.persister cimport Persister
from broker.store.files.operation cimport File
from broker.store.files.io_thread cimport Round
from broker.store.files.record cimport AckEntry, record_view
from broker.store.files.space_ahead cimport Frequency
from broker.store.files.spans cimport Span


cdef enum:
    FILLING = 0
    FROZEN = 1           # full, waits for the next round
    WRITING = 2
    WRITTEN = 3


cdef enum:
    MIXED = 0xFFFFFFFF


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


# A run of records in memory, or one with a large body, of which `data` has all that comes before
# the body. One block is FILLING: the tail.
cdef struct Block:
    uint8_t* data
    size_t capacity
    size_t length                # of all records
    void* large                  # the LargeBody, or NULL
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


cdef inline void block_view(const Block* block, const uint8_t* record, Message* message) noexcept:
    """Points `message` into one of the block's records."""
    record_view(record, message)
    if block.large != NULL:
        message.large = block.large
        message.body = (<LargeBody> block.large).body()


cdef int push_entry(AckEntry** entries, uint32_t* count, uint32_t* capacity, uint32_t position,
                    uint32_t word) except -1
cdef int push_settled(AckEntry** entries, uint32_t* count, uint32_t* capacity,
                      const Place* places, uint32_t more) except -1


@cython.final
cdef class QueueDirectory:
    cdef Persister persister
    cdef str parent              # the directory of the queues' directories
    cdef readonly uint64_t incarnation
    cdef bint made               # it is there, or the round in flight makes it
    cdef uint32_t users          # of those who may have files in it, how many have not left

    cdef int ensure(self, Round* round) except -1
    cdef int leave(self) except -1


@cython.final
cdef class Segments:
    cdef Persister persister
    cdef QueueDirectory folder
    cdef bint durable
    cdef bint ending             # the queue is deleted
    cdef bint left               # no file is left
    cdef bint closing            # no deliveries any more
    cdef bint extends            # files may get space ahead of their records
    cdef bint gives_back         # with the next round: the active segment's, too
    cdef bint has_surplus        # a sealed segment's file may have space ahead
    cdef bint marks_flying       # the round in flight writes watermarks
    cdef Segment* head
    cdef Segment* last           # behind which nothing is
    cdef Segment* active
    cdef Segment* last_found
    cdef Segment* first_pending
    cdef uint32_t first_number   # numbers of its segments: the first one,
    cdef uint32_t numbers_behind  # how many others there are,
    cdef uint32_t next_number    # and the next to give
    cdef Frequency frequency     # of the rounds in the last segment's file
    cdef Block* first_block
    cdef Block* last_block
    cdef Block* tail             # == last_block while it is FILLING, else NULL
    cdef uint64_t drops          # tails whose positions were given back
    cdef Segment* cursor         # where the next unread record lies
    cdef uint32_t cursor_position
    cdef uint32_t cursor_skip
    cdef list removing           # addresses of segments whose files are busy; None without any

    cdef int roll(self) except -1
    cdef int append(self, Segment* segment) except -1
    cdef Block* new_tail(self, uint32_t length) except NULL
    cdef Block* new_large(self, const Message* message, const uint8_t* first,
                          uint32_t first_length) except NULL
    cdef void add_block(self, Block* block) noexcept
    cdef Block* room_for(self, uint32_t length) except NULL
    cdef void free_block(self, Block* block) noexcept
    cdef void no_longer_unwritten(self, Block* block) noexcept
    cdef bint may_keep(self, Block* block) noexcept
    cdef void free_written(self) noexcept
    cdef void free_unwritten(self) noexcept
    cdef int drop_tail(self) except -1
    cdef Block* block_of(self, Segment* segment, uint32_t position) noexcept
    cdef Segment* find(self, uint32_t number) noexcept
    cdef uint32_t written_end(self, Segment* segment, uint32_t position) noexcept
    cdef bint was_read(self, Block* block) noexcept
    cdef bint is_read_from_memory(self) noexcept
    cdef int note(self, Segment* segment, uint32_t position, uint32_t word) except -1
    cdef int list_pending(self, Segment* segment) except -1
    cdef bint mark_exactly(self) except -1
    cdef int drop(self, Segment* segment, Dirty owner) except -1
    cdef int remove(self, Segment* segment, Dirty owner) except -1
    cdef int remove_waiting(self, Dirty owner) except -1
    cdef bint is_postponed(self) noexcept
    cdef bint has_no_files(self) noexcept
    cdef bint is_being_written(self) noexcept
    cdef bint remove_all(self, Dirty owner) except -1
    cdef File* ensure_file(self, Round* round, Segment* segment, bint acks) except NULL
    cdef int freeze(self, Round* round, bint keep) except -1
    cdef int freeze_marks(self, bint keep) except -1
    cdef int freeze_acks(self, Round* round) except -1
    cdef int freeze_records(self, Round* round, bint keep) except -1
    cdef int freeze_surplus(self, Round* round) except -1
    cdef bint give_back(self) noexcept
    cdef int written(self, bint keep, Dirty owner) except -1
    cdef int64_t count(self) noexcept
    cdef int64_t disk_bytes(self) noexcept

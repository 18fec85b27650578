from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from broker.kernel.message cimport Message, Place
from broker.kernel.turn cimport Task
from broker.store.disk cimport File
from broker.store.io_thread cimport Round
from broker.store.persister cimport Dirty, Persister
from broker.store.record cimport AckEntry


cdef enum:
    FILLING = 0
    FROZEN = 1           # full, waits for the next round
    WRITING = 2
    WRITTEN = 3


# A skipped stretch of a recovered segment: a settled record, or bytes that are no record.
cdef struct Skip:
    uint32_t position
    uint32_t length


cdef struct Segment:
    uint32_t number
    uint32_t count               # records
    uint32_t settled
    uint32_t length              # position behind the last record
    uint32_t watermark           # delivered up to here, as noted for the acks file
    uint32_t watermark_flying
    uint32_t watermark_safe      # delivered up to here, as written
    uint32_t recovered_watermark # records below it may have been delivered before this start
    uint32_t acks_length         # bytes in the acks file, as handed to the writer
    bint header_written
    bint sealed
    File* messages
    File* acks
    AckEntry* pending            # entries not yet handed to the writer
    uint32_t pending_count
    uint32_t pending_capacity
    bint pending_listed
    Segment* next_pending
    Skip* skips                  # sorted
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
    int state
    AckEntry* pending            # settled records of the tail: they become acks entries if the tail is written
    uint32_t pending_count
    uint32_t pending_capacity
    Block* next


cdef struct Requeued:
    uint64_t key                 # segment << 32 | position
    uint32_t length


# What QueueStore.peek returns.
cdef enum:
    EMPTY = 0
    FOUND = 1
    WAIT = 2


cdef class QueueStore(Dirty):
    cdef Persister persister
    cdef Task owner
    cdef object owner_touch      # called when a wait is over
    cdef readonly uint64_t incarnation
    cdef readonly bint durable
    cdef str parent
    cdef bint directory_made
    cdef readonly bint deleted
    cdef public bint keep        # consumers are there: keep what they will read next in memory
    cdef Segment* head
    cdef Segment* active
    cdef Segment* last_found
    cdef Segment* first_pending
    cdef uint32_t next_number
    cdef Block* first_block
    cdef Block* last_block
    cdef Block* tail             # == last_block while it is FILLING, else NULL
    cdef Segment* cursor
    cdef uint32_t cursor_position
    cdef uint32_t cursor_skip
    cdef Requeued* heap
    cdef uint32_t heap_count
    cdef uint32_t heap_capacity
    cdef readonly uint64_t ready
    cdef readonly uint64_t ready_bytes
    cdef readonly uint64_t total
    cdef readonly uint64_t total_bytes
    cdef bint reading
    cdef bint waiting_round      # a delivery waits for a watermark
    cdef uint8_t* read_data
    cdef size_t read_capacity
    cdef size_t read_length
    cdef uint32_t read_position
    cdef Segment* read_segment
    cdef list removing           # addresses of segments whose files are busy
    cdef public uint32_t idle_ticks

    cdef int append(self, Message* message) except -1
    cdef int peek(self, Message* message, Place* place) except -1
    cdef int advance(self, Place* place) except -1
    cdef int settle(self, Place* place) except -1
    cdef int requeue(self, Place* place) except -1
    cdef int roll(self) except -1
    cdef Block* new_tail(self, uint32_t length) except NULL
    cdef void free_block(self, Block* block) noexcept
    cdef int drop_tail(self) except -1
    cdef int leave_segment(self, Segment* segment) except -1
    cdef int view(self, Segment* segment, uint32_t position, Message* message, Place* place, bint redelivered) except -1
    cdef Block* block_of(self, Segment* segment, uint32_t position) noexcept
    cdef int want_watermark(self, Segment* segment) except -1
    cdef uint8_t* read_record(self, Segment* segment, uint32_t position) except? NULL
    cdef uint8_t* pass_over(self, Segment* segment, uint32_t position, uint8_t* record, size_t have) except? NULL
    cdef int fetch(self, Segment* segment, uint32_t position, size_t wanted) except -1
    cdef Segment* find(self, uint32_t number) noexcept
    cdef int note(self, Segment* segment, uint32_t position, uint32_t word) except -1
    cdef int drop_segment(self, Segment* segment) except -1
    cdef int remove_segment(self, Segment* segment) except -1
    cdef int remove_waiting(self) except -1
    cdef void heap_pop(self) noexcept
    cdef int ensure_directory(self, Round* round) except -1
    cdef File* ensure_file(self, Round* round, Segment* segment, bint acks) except NULL
    cdef int finish_delete(self) except -1

# cython: language_level=3
"""The file of an index that is written to: a hash table with chains in memory, and its items in
batches on disk.

One thread adds items, others may look for keys meanwhile: an item is complete before the atomic
store of its slot shows it. The file is only ever appended to. Each batch carries how far each
stream is indexed with it, and its own checksum, so that what is sound after a crash is a state that
the index had; slots and chains follow from the items and are made again when it is loaded.
"""

import os

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from broker.kernel.checksum cimport crc32c_of, place_seed
from broker.store.files import disk
from broker.store.files.disk cimport file_close, file_free, file_new, run_op
from broker.store.files.operation cimport OP_OPEN, OP_WRITE, Op
from broker.store.keys.candidates cimport Candidates
from broker.store.keys.hashing cimport secret_of
from broker.store.keys.layout cimport (
    BATCH_MAGIC, BatchHead, BatchRow, FORMAT_VERSION, ITEMS_A_SLOT, Item, STREAMS_MAX, StreamRow,
    UNSEALED_MAGIC, UnsealedHead, base_of, held,
)
from broker.store.keys.rows import Damaged, Row


cdef extern from * nogil:
    """
    #define SHOW_SLOT(slot, value) __atomic_store_n((slot), (value), __ATOMIC_RELEASE)
    #define SEEN_SLOT(slot) __atomic_load_n((slot), __ATOMIC_ACQUIRE)
    #define FETCH(place) __builtin_prefetch((place), 1)
    """
    void SHOW_SLOT(uint32_t* slot, uint32_t value)
    uint32_t SEEN_SLOT(const uint32_t* slot)
    void FETCH(const void* place)


cdef enum:
    AHEAD = 8                            # items whose slots are on their way from memory


cdef class Unsealed:
    """`capacity`: how many items it takes. The file is made with the first batch."""

    def __init__(self, str path, uint32_t number, uint64_t file_id, uint64_t serial, bytes secret,
                 uint32_t capacity):
        self.path = path
        self.number = number
        self.file_id = file_id
        self.serial = serial
        self.secret = secret
        self.key = secret_of(secret)
        self.capacity = capacity
        self.slot_count = 1
        while self.slot_count < capacity // ITEMS_A_SLOT:
            self.slot_count *= 2
        self.numbers = {}
        self.incarnations = []
        # Zeroed pages take no memory until something stands in them.
        self.items = <Item*> calloc(capacity, sizeof(Item))
        self.slots = <uint32_t*> calloc(self.slot_count, sizeof(uint32_t))
        self.table = <StreamRow*> calloc(STREAMS_MAX, sizeof(StreamRow))
        self.changed = <uint8_t*> calloc(STREAMS_MAX, 1)
        if (self.items == NULL or self.slots == NULL or self.table == NULL
                or self.changed == NULL):
            raise MemoryError(f"no memory for an index file of {capacity} items")
        self.file = file_new(path)

    def __dealloc__(self):
        file_free(self.file)
        free(self.items)
        free(self.slots)
        free(self.table)
        free(self.changed)

    @property
    def is_full(self) -> bool:
        return self.count == self.capacity

    @property
    def unwritten(self) -> bool:
        """Whether something is not in the file yet."""
        return self.changed_count > 0

    @property
    def rows(self) -> list:
        """The streams by number."""
        cdef uint32_t i
        cdef StreamRow* row
        found = []
        for i in range(self.row_count):
            row = &self.table[i]
            found.append(Row(
                row.incarnation, row.items, row.first_segment, row.last_segment,
                (row.begin_segment, row.begin_position), (row.next_segment, row.next_position)))
        return found

    # -- adding ------------------------------------------------------------------------------------

    def stream(self, uint64_t incarnation, tuple position) -> int:
        """The number of a stream here; a new one is indexed from (segment, position) on; -1: there
        are `STREAMS_MAX` already."""
        cdef uint32_t row
        found = self.numbers.get(incarnation)
        if found is not None:
            return found
        if self.row_count == STREAMS_MAX:
            return -1
        row = self.row_count
        self.table[row].incarnation = incarnation
        self.table[row].begin_segment = self.table[row].next_segment = position[0]
        self.table[row].begin_position = self.table[row].next_position = position[1]
        self.incarnations.append(incarnation)
        self.row_count += 1
        self.numbers[incarnation] = row
        self.touch(row)
        return row

    def next_of(self, incarnation) -> object:
        """Up to which (segment, position) a stream is indexed; None: it is not known here."""
        cdef StreamRow* row
        found = self.numbers.get(incarnation)
        if found is None:
            return None
        row = &self.table[<uint32_t> found]
        return row.next_segment, row.next_position

    cdef void touch(self, uint32_t row) noexcept nogil:
        if not self.changed[row]:
            self.changed[row] = True
            self.changed_count += 1

    cdef bint add(self, uint64_t hash, uint32_t row, uint32_t segment, uint32_t position,
                  uint32_t size, int64_t time) noexcept nogil:
        """Adds an item, which is found after `link`. False: the file is full."""
        cdef Item* item
        cdef StreamRow* stream = &self.table[row]
        if self.count == self.capacity:
            return False
        if not self.has_begun:
            self.has_begun = True
            self.begin_ms = time
        if self.count == 0:
            self.first_ms = self.last_ms = time
        elif time < self.first_ms:
            self.first_ms = time
        elif time > self.last_ms:
            self.last_ms = time
        item = &self.items[self.count]
        item.hash = hash
        item.stream = row
        item.segment = segment
        item.position = position
        item.size = size
        item.ms = held(time, base_of(self.begin_ms))
        if stream.items == 0 or segment < stream.first_segment:
            stream.first_segment = segment
        if segment > stream.last_segment:
            stream.last_segment = segment
        stream.items += 1
        self.touch(row)
        self.count += 1
        return True

    cdef void link(self) noexcept nogil:
        """Puts the items that were added since the last call at the heads of their slots' chains,
        where others see them. Slots lie far apart: those of the next items are fetched from memory
        meanwhile."""
        cdef uint64_t mask = self.slot_count - 1
        cdef Item* item
        cdef uint32_t* slot
        while self.linked < self.count:
            if self.linked + AHEAD < self.count:
                FETCH(&self.slots[self.items[self.linked + AHEAD].hash & mask])
            item = &self.items[self.linked]
            slot = &self.slots[item.hash & mask]
            item.previous = slot[0]
            self.linked += 1
            SHOW_SLOT(slot, self.linked)

    cdef void advance(self, uint32_t row, uint32_t segment, uint32_t position,
                      int64_t time) noexcept nogil:
        """All of the stream before this place is indexed; the last message there is of `time`."""
        cdef StreamRow* stream = &self.table[row]
        if stream.next_segment == segment and stream.next_position == position:
            return
        if not self.has_begun:
            self.has_begun = True
            self.begin_ms = time
        stream.next_segment = segment
        stream.next_position = position
        self.touch(row)

    def put(self, uint64_t hash, uint32_t row, uint32_t segment, uint32_t position, uint32_t size,
            int64_t time) -> bool:
        """As `add` and `link`, for Python."""
        cdef bint is_added = self.add(hash, row, segment, position, size, time)
        self.link()
        return is_added

    def pass_by(self, uint32_t row, uint32_t segment, uint32_t position, int64_t time) -> None:
        """As `advance`, for Python."""
        self.advance(row, segment, position, time)

    # -- looking -----------------------------------------------------------------------------------

    def find(self, uint64_t hash, int64_t first_ms, int64_t last_ms, streams):
        """The items of a hash between two times, both included, of these incarnations (None: all).
        For any thread."""
        cdef int64_t base = base_of(self.begin_ms)
        cdef uint32_t low = held(first_ms, base)
        cdef uint32_t high = held(last_ms, base)
        cdef bytes wanted = bytes(
            [streams is None or each in streams for each in self.incarnations])
        cdef const uint8_t* takes = wanted
        cdef size_t known = len(wanted)
        cdef Candidates found = Candidates(base, self.incarnations)
        cdef const Item* item
        cdef bint has_memory = True
        cdef uint32_t at
        with nogil:
            at = SEEN_SLOT(&self.slots[hash & (self.slot_count - 1)])
            while at and has_memory:
                item = &self.items[at - 1]
                if (item.hash == hash and low <= item.ms <= high and item.stream < known
                        and takes[item.stream]):
                    has_memory = found.add(
                        item.ms, item.stream, item.segment, item.position, item.size)
                at = item.previous
            found.sort()
        if not has_memory:
            raise MemoryError("no memory for what an index found")
        return found

    # -- the file ----------------------------------------------------------------------------------

    def flush(self) -> int:
        """Appends everything that is not in the file yet as one batch, unsynced; returns its bytes.
        Raises OSError: the next call writes it then."""
        cdef size_t size = sizeof(BatchHead) + self.changed_count * sizeof(BatchRow) + (
            <size_t> (self.count - self.written) * sizeof(Item))
        cdef size_t head = 0 if self.length else sizeof(UnsealedHead)
        cdef uint8_t* data
        cdef uint32_t items = self.count
        # Its head says when the first item was: before that there is nothing to be found again.
        if not self.changed_count or not self.has_begun:
            return 0
        data = <uint8_t*> malloc(head + size)
        if data == NULL:
            raise MemoryError("no memory for a batch of an index")
        try:
            if head:
                self.head_put(<UnsealedHead*> data)
            with nogil:
                self.batch_put(data + head)
            self.write_at_end(data, head + size)
        finally:
            free(data)
        self.length += head + size
        self.batches += 1
        self.written = items
        memset(self.changed, 0, self.row_count)
        self.changed_count = 0
        return head + size

    cdef int write_at_end(self, uint8_t* data, size_t size) except -1:
        cdef Op op
        memset(&op, 0, sizeof(Op))
        op.file = self.file
        op.kind = OP_OPEN
        with nogil:
            run_op(&op)
            if op.error == 0:
                op.kind = OP_WRITE
                op.data = data
                op.length = size
                op.offset = self.length
                run_op(&op)
        if op.error:
            raise OSError(op.error, os.strerror(op.error), self.path)
        return 0

    cdef void head_put(self, UnsealedHead* head) noexcept:
        memset(head, 0, sizeof(UnsealedHead))
        head.magic = UNSEALED_MAGIC
        head.version = FORMAT_VERSION
        head.file_id = self.file_id
        head.serial = self.serial
        memcpy(head.secret, <const char*> self.secret, 16)
        head.number = self.number
        head.capacity = self.capacity
        head.begin_ms = self.begin_ms
        head.check = crc32c_of(0, <const uint8_t*> head, sizeof(UnsealedHead) - 4)

    cdef size_t batch_put(self, uint8_t* place) noexcept nogil:
        """Writes a batch of what is changed; its bytes."""
        cdef BatchHead* head = <BatchHead*> place
        cdef BatchRow* row = <BatchRow*> (place + sizeof(BatchHead))
        cdef uint32_t i
        cdef size_t size
        head.magic = BATCH_MAGIC
        head.rows = self.changed_count
        head.items = self.count - self.written
        head.first_ms = self.first_ms
        head.last_ms = self.last_ms
        for i in range(self.row_count):
            if self.changed[i]:
                row.number = i
                row.row = self.table[i]
                row += 1
        memcpy(row, self.items + self.written, <size_t> head.items * sizeof(Item))
        size = <uint8_t*> row - place + <size_t> head.items * sizeof(Item)
        head.check = crc32c_of(place_seed(self.file_id, self.batches, 0), place + 8, size - 8)
        return size

    cdef size_t batch_take(self, const uint8_t* place, size_t available) noexcept:
        """Takes a sound batch that stands there; its bytes, 0: there is none."""
        cdef const BatchHead* head = <const BatchHead*> place
        cdef const BatchRow* row = <const BatchRow*> (place + sizeof(BatchHead))
        cdef size_t size
        cdef uint32_t _each
        if available < sizeof(BatchHead) or head.magic != BATCH_MAGIC:
            return 0
        size = (sizeof(BatchHead) + <size_t> head.rows * sizeof(BatchRow)
                + <size_t> head.items * sizeof(Item))
        if (head.rows > STREAMS_MAX or head.items > self.capacity - self.count
                or size > available or head.check != crc32c_of(
                    place_seed(self.file_id, self.batches, 0), place + 8, size - 8)):
            return 0
        for _each in range(head.rows):
            if row.number == self.row_count:
                self.row_count += 1
                self.numbers[row.row.incarnation] = row.number
                self.incarnations.append(row.row.incarnation)
            self.table[row.number] = row.row
            row += 1
        memcpy(self.items + self.count, row, <size_t> head.items * sizeof(Item))
        self.count += head.items
        self.link()
        self.first_ms = head.first_ms
        self.last_ms = head.last_ms
        self.batches += 1
        return size

    @staticmethod
    def load(str path):
        """A file as its last sound batch left it; what stands behind that is cut. Raises OSError,
        and Damaged if the file does not begin as one of this version."""
        cdef Unsealed self
        cdef bytes content = disk.read(path)
        cdef const uint8_t* data = content
        cdef size_t length = len(content)
        cdef size_t at = sizeof(UnsealedHead)
        cdef size_t taken
        cdef UnsealedHead head
        if length < at:
            raise Damaged(f"{path} has {length} bytes")
        memcpy(&head, data, at)
        if (head.magic != UNSEALED_MAGIC or head.version != FORMAT_VERSION
                or head.check != crc32c_of(0, data, at - 4)):
            raise Damaged(f"{path} does not begin as a file of an index of this version")
        self = Unsealed(path, head.number, head.file_id, head.serial,
                        (<const char*> head.secret)[:16], head.capacity)
        self.begin_ms = head.begin_ms
        self.has_begun = True
        while True:
            taken = self.batch_take(data + at, length - at)
            if not taken:
                break
            at += taken
        self.written = self.count
        self.length = at
        if at < length:
            disk.truncate(path, at)
            self.torn = True
        return self

    def close(self) -> None:
        """Closes the file; what is in memory stays."""
        file_close(self.file)

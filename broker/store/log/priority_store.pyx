# cython: language_level=3
"""The messages of a priority queue: a store for each level, with the interface of one store.

A level is a `QueueStore` of its own in the queue's directory. The level is the top byte of its
segments' numbers, so a place, a ledger entry, a file's name and a record's checksum need no other
change. Levels are made when they are used, and a bitmap has a bit for each one with ready messages:
the highest of 256 is found in four words, and a queued message costs no memory here either.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free

from broker.kernel.buffer cimport load16, load32
from broker.kernel.message cimport Message, Place
from broker.store.bodies.store cimport BodyStore
from broker.store.commit.persister cimport Persister
from broker.store.log.queue_store cimport EMPTY, NO_END, QueueStore
from broker.store.log.segments cimport Block, WRITTEN

from broker.store.log.segments import not_needed


cdef extern from *:
    int __builtin_clzll(unsigned long long) nogil
    int __builtin_ctzll(unsigned long long) nogil


cdef uint32_t priority_of(Message* message) noexcept:
    """The message's priority, 0 without one. The properties are known to be well formed."""
    cdef const uint8_t* p = message.properties
    cdef uint16_t flags = load16(p)
    cdef int bit
    if not flags >> 11 & 1:
        return 0
    p += 2
    for bit in range(15, 11, -1):
        if not flags >> bit & 1:
            continue
        if bit == 13:
            p += 4 + load32(p)
        elif bit == 12:
            p += 1
        else:
            p += 1 + <uint32_t> p[0]
    return p[0]


cdef class Level(QueueStore):
    """The messages of one priority."""

    cdef int roll(self) except -1:
        # After 16,777,215 segments a level's numbers begin again.
        if self.next_number >> LEVEL_SHIFT != self.priority:
            self.next_number = self.priority << LEVEL_SHIFT | 1
            while self.find(self.next_number) != NULL:
                self.next_number += 1
        return QueueStore.roll(self)

    cdef void forget_written(self) noexcept:
        """Another level comes first: what waited in memory for consumers is on disk, too."""
        cdef Block* block = self.first_block
        cdef Block* following
        while block != NULL:
            following = block.next
            if block.state == WRITTEN:
                self.free_block(block)
            block = following

    cdef void forget_read(self) noexcept:
        """Gives the read buffer back."""
        if not self.reading:
            free(self.read_data)
            self.read_data = NULL
            self.read_capacity = self.read_length = 0
            self.read_segment = NULL

    cdef int remove_directory(self) except -1:
        whole, self.whole = self.whole, None
        return (<PriorityStore> whole).remove_directory()


cdef class PriorityStore(QueueStore):
    """Levels 0 to `max_priority` (at most 255). Its own counters are the sums of theirs; it has no
    segments of its own."""

    def __init__(self, Persister persister, str parent, uint64_t incarnation, bint durable, touch,
                 uint32_t max_priority, BodyStore bodies=None):
        QueueStore.__init__(self, persister, parent, incarnation, durable, touch, bodies)
        self.max_priority = max_priority
        self.levels = [None] * (max_priority + 1)

    # -- levels ------------------------------------------------------------------------------------

    cdef Level level(self, uint32_t priority):
        cdef Level level = self.levels[priority]
        if level is None:
            level = Level(self.persister, self.parent, self.incarnation, self.durable,
                          self.owner_touch, self.bodies)
            level.priority = priority
            level.next_number = priority << LEVEL_SHIFT | self.next_number
            level.directory_made = self.directory_made
            self.levels[priority] = level
        return level

    cdef Level level_of(self, Place* place):
        return <Level> self.levels[place.segment >> LEVEL_SHIFT]

    cdef int highest(self) noexcept:
        """The highest level with ready messages, or -1."""
        cdef int word
        for word in range(BITMAP_WORDS - 1, -1, -1):
            if self.occupied[word]:
                return word * 64 + 63 - __builtin_clzll(self.occupied[word])
        return -1

    cdef int lowest(self) noexcept:
        cdef int word
        for word in range(BITMAP_WORDS):
            if self.occupied[word]:
                return word * 64 + __builtin_ctzll(self.occupied[word])
        return -1

    cdef int next_level(self, int above) noexcept:
        cdef int word = (above - 1) >> 6
        cdef uint64_t bits
        if above <= 0:
            return -1
        if word >= BITMAP_WORDS:
            return self.highest()
        # What stands below bit `above`, then whole words.
        bits = self.occupied[word] & (~<uint64_t> 0 >> (63 - ((above - 1) & 63)))
        while True:
            if bits:
                return word * 64 + 63 - __builtin_clzll(bits)
            word -= 1
            if word < 0:
                return -1
            bits = self.occupied[word]

    cdef void without(self, Level level) noexcept:
        """Before anything is done to a level: its counts leave the sums."""
        self.ready -= level.ready
        self.ready_bytes -= level.ready_bytes
        self.total -= level.total
        self.total_bytes -= level.total_bytes

    cdef void again(self, Level level) noexcept:
        """After it: they come back, and the bitmap is right."""
        cdef uint64_t bit = <uint64_t> 1 << (level.priority & 63)
        self.ready += level.ready
        self.ready_bytes += level.ready_bytes
        self.total += level.total
        self.total_bytes += level.total_bytes
        if level.ready:
            self.occupied[level.priority >> 6] |= bit
        else:
            self.occupied[level.priority >> 6] &= ~bit

    # -- messages ----------------------------------------------------------------------------------

    cdef int append(self, Message* message) except -1:
        cdef uint32_t priority = priority_of(message)
        cdef Level level
        if priority > self.max_priority:
            priority = self.max_priority
        level = self.level(priority)
        self.without(level)
        if level.ready == 0:
            level.deadline = 0
        try:
            level.append(message)
        finally:
            self.again(level)
        return 0

    cdef int peek(self, Message* message, Place* place) except -1:
        cdef int priority = self.highest()
        cdef Level level
        if priority < 0:
            return EMPTY
        level = <Level> self.levels[priority]
        if self.kept is not level:
            if self.kept is not None:
                self.kept.keep = False
                self.kept.forget_written()
                self.kept.forget_read()
            self.kept = level
        level.keep = self.keep
        return self.peek_at(priority, message, place)

    cdef int peek_at(self, int priority, Message* message, Place* place) except -1:
        cdef Level level = <Level> self.levels[priority]
        cdef int found
        self.without(level)
        try:
            found = level.peek(message, place)
        finally:
            self.again(level)
        if level.lost is not None:
            self.lost = level.lost if self.lost is None else self.lost + level.lost
            level.lost = None
        return found

    cdef int look_at(self, int priority, Message* message) except -1:
        return (<Level> self.levels[priority]).look_at(0, message)

    cdef bint first_place(self, Place* place) noexcept:
        cdef int priority = self.highest()
        return priority >= 0 and (<Level> self.levels[priority]).first_place(place)

    cdef int peek_least(self, Message* message, Place* place) except -1:
        cdef int priority = self.lowest()
        return self.peek_at(priority, message, place) if priority >= 0 else EMPTY

    cdef int read(self, Place* place, Message* message) except -1:
        return self.level_of(place).read(place, message)

    cdef uint64_t end(self) noexcept:
        """Each level has a mark of its own; the value stands for all of them, until the next
        call."""
        cdef Level level
        for level in self.levels:
            if level is not None:
                level.mark = level.end()
        return 1

    cdef bint is_behind(self, Place* place, uint64_t end) noexcept:
        cdef Level level = self.level_of(place)
        return end != NO_END and level.is_behind(place, level.mark)

    cdef uint32_t count_return(self, Place* place) except? 0:
        return self.level_of(place).count_return(place)

    cdef uint32_t returns_of(self, Place* place) except? 0:
        return self.level_of(place).returns_of(place)

    cdef int64_t deadline_at(self, int priority, int64_t queue_ttl) noexcept:
        cdef Level level = <Level> self.levels[priority]
        return level.deadline if level.deadline_ttl == queue_ttl else 0

    cdef void note_deadline(self, int priority, int64_t queue_ttl, int64_t deadline) noexcept:
        cdef Level level = <Level> self.levels[priority]
        level.deadline = deadline
        level.deadline_ttl = queue_ttl
        if level is not self.kept:
            # Reading does not continue here; 256 levels must not hold a buffer each.
            level.forget_read()

    cdef int advance(self, Place* place) except -1:
        cdef Level level = self.level_of(place)
        self.without(level)
        level.deadline = 0
        try:
            level.advance(place)
        finally:
            self.again(level)
        return 0

    cdef int settle(self, Place* place) except -1:
        cdef Level level = self.level_of(place)
        self.without(level)
        try:
            level.settle(place)
        finally:
            self.again(level)
        return 0

    cdef int requeue(self, Place* place) except -1:
        cdef Level level = self.level_of(place)
        self.without(level)
        level.deadline = 0
        try:
            level.requeue(place)
        finally:
            self.again(level)
        return 0

    def purge_part(self, uint32_t most) -> int:
        """Settles so many of the messages that came back to one of the levels. Returns how
        many."""
        cdef Level level
        for level in self.levels:
            if level is not None and level.requeued.count:
                self.without(level)
                level.deadline = 0
                purged = level.purge_part(most)
                self.again(level)
                return purged
        return 0

    def purge(self) -> int:
        """Settles every ready message of every level without reading it. Returns how many."""
        cdef Level level
        purged = 0
        for level in self.levels:
            if level is not None and level.ready:
                self.without(level)
                level.deadline = 0
                purged += level.purge()
                self.again(level)
        return purged

    # -- recovery, rest and end --------------------------------------------------------------------

    cdef uint32_t unused_number(self) noexcept:
        """Below the level: what no level has given."""
        cdef Level level
        cdef uint32_t number = self.next_number
        for level in self.levels:
            if level is not None and level.next_number - (level.priority << LEVEL_SHIFT) > number:
                number = level.next_number - (level.priority << LEVEL_SHIFT)
        return number if number >> LEVEL_SHIFT == 0 else 1

    cdef QueueStore part(self, uint32_t segment):
        cdef uint32_t priority = segment >> LEVEL_SHIFT
        return self.level(priority) if priority <= self.max_priority else None

    cdef int recovered(self) except -1:
        cdef Level level
        for level in self.levels:
            if level is not None:
                self.again(level)
                self.any_expires = self.any_expires or level.any_expires
        return 0

    def rest(self) -> None:
        """The queue is idle: each level gives back what it can."""
        cdef Level level
        if self.body is not None:
            self.body.rest()
        for level in self.levels:
            if level is not None:
                level.rest()
        if self.kept is not None:
            self.kept.keep = self.keep

    def close(self) -> None:
        """Clean stop: the watermarks of all levels become exact."""
        cdef Level level
        for level in self.levels:
            if level is not None:
                level.close()

    def delete(self) -> None:
        """The queue is deleted, with all levels. The last level without files removes the
        directory: the writer may be making a file for another one."""
        cdef Level level
        cdef bint made = self.directory_made
        self.deleted = True
        self.kept = None
        used = [each for each in self.levels if each is not None]
        if not used:
            QueueStore.delete(self)
        for level in used:
            made = made or level.directory_made
        self.leaving = <uint32_t> len(used)
        for level in used:
            level.directory_made = made
            if made:
                level.whole = self
            level.delete()
        self.ready = self.ready_bytes = self.total = self.total_bytes = 0
        self.occupied = [0, 0, 0, 0]
        self.owner_touch = not_needed

    cdef int remove_directory(self) except -1:
        if self.leaving > 1:
            self.leaving -= 1
            return 0
        return QueueStore.remove_directory(self)

    # -- figures -----------------------------------------------------------------------------------

    @property
    def segments(self) -> int:
        return sum([level.segments for level in self.levels if level is not None])

    def count_references(self) -> int:
        return sum([level.count_references() for level in self.levels if level is not None])

    @property
    def disk_bytes(self) -> int:
        """Bytes in the files of all levels, as handed to the writer."""
        return sum([level.disk_bytes for level in self.levels if level is not None])

    @property
    def disk_bytes_live(self) -> int:
        """Bytes in the files of all levels that hold unsettled messages."""
        return sum([level.disk_bytes_live for level in self.levels if level is not None])

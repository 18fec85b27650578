# cython: language_level=3
"""The messages of a priority queue: a store for each level, behind the contract of one store.

A level is a `QueueStore` of its own in the queue's directory. The level is the top byte of its
segments' numbers, so a place, a ledger entry, a file's name and a record's checksum need no other
change. Levels are made when they are used, and a bitmap has a bit for each one with ready messages:
the highest of 256 is found in four words, and a queued message costs no memory here either.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from broker.kernel.buffer cimport load16, load32
from broker.kernel.message cimport Message, Place
from broker.store.bodies.store cimport BodyStore
from broker.store.log.contracts cimport EMPTY, MessageStore, NO_END
from broker.store.log.queue_store cimport QueueStore
from broker.store.log.segments cimport QueueDirectory
from broker.store.log.shared_refs cimport SharedRefs

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


@cython.final
cdef class Level:
    """The store of one priority, and what is known of its first message."""

    def __init__(self, QueueStore store, uint32_t priority):
        self.store = store
        self.priority = priority


cdef class PriorityStore(MessageStore):
    """Levels 0 to `max_priority` (at most 255). Its counters are the sums of theirs."""

    def __init__(self, QueueDirectory folder, bint durable, touch, uint32_t max_priority,
                 BodyStore bodies=None):
        self.persister = folder.persister
        self.folder = folder
        folder.users += 1
        self.durable = durable
        self.touch = touch
        self.refs = SharedRefs(bodies)
        self.max_priority = max_priority
        self.next_number = 1
        self.levels = [None] * (max_priority + 1)

    # -- levels ------------------------------------------------------------------------------------

    cdef Level level(self, uint32_t priority):
        cdef Level level = self.levels[priority]
        cdef QueueStore store
        if level is None:
            # After 16,777,215 segments a level's numbers begin again.
            store = QueueStore(
                self.folder, self.durable, self.touch, self.refs.bodies,
                priority << LEVEL_SHIFT | 1, (1 << LEVEL_SHIFT) - 2)
            store.segments.next_number = priority << LEVEL_SHIFT | self.next_number
            level = Level(store, priority)
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
        self.ready -= level.store.ready
        self.ready_bytes -= level.store.ready_bytes
        self.total -= level.store.total
        self.total_bytes -= level.store.total_bytes

    cdef void again(self, Level level) noexcept:
        """After it: they come back, and the bitmap is right."""
        cdef uint64_t bit = <uint64_t> 1 << (level.priority & 63)
        self.ready += level.store.ready
        self.ready_bytes += level.store.ready_bytes
        self.total += level.store.total
        self.total_bytes += level.store.total_bytes
        if level.store.ready:
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
        if level.store.ready == 0:
            level.deadline = 0
        try:
            level.store.append(message)
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
                # Another level comes first: what waited in memory for consumers is on disk, too.
                self.kept.store.keep = False
                self.kept.store.segments.free_written()
                self.kept.store.rest_reading()
            self.kept = level
        level.store.keep = self.keep
        return self.peek_at(priority, message, place)

    cdef int peek_at(self, int priority, Message* message, Place* place) except -1:
        cdef Level level = <Level> self.levels[priority]
        cdef int found
        self.without(level)
        try:
            found = level.store.peek(message, place)
        finally:
            self.again(level)
        lost, level.store.lost = level.store.lost, None
        if lost is not None:
            self.lost = lost if self.lost is None else self.lost + lost
        return found

    cdef int look_at(self, int priority, Message* message) except -1:
        return (<Level> self.levels[priority]).store.look_at(0, message)

    cdef bint first_place(self, Place* place) noexcept:
        cdef int priority = self.highest()
        return priority >= 0 and (<Level> self.levels[priority]).store.first_place(place)

    cdef int peek_least(self, Message* message, Place* place) except -1:
        cdef int priority = self.lowest()
        return self.peek_at(priority, message, place) if priority >= 0 else EMPTY

    cdef int read(self, Place* place, Message* message) except -1:
        return self.level_of(place).store.read(place, message)

    cdef uint64_t end(self) noexcept:
        """Each level has a mark of its own; the value stands for all of them, until the next
        call."""
        cdef Level level
        for level in self.levels:
            if level is not None:
                level.mark = level.store.end()
        return 1

    cdef bint is_behind(self, Place* place, uint64_t end) noexcept:
        cdef Level level = self.level_of(place)
        return end != NO_END and level.store.is_behind(place, level.mark)

    cdef uint32_t count_return(self, Place* place) except? 0:
        return self.level_of(place).store.count_return(place)

    cdef uint32_t returns_of(self, Place* place) except? 0:
        return self.level_of(place).store.returns_of(place)

    cdef int64_t deadline_at(self, int priority, int64_t queue_ttl) noexcept:
        cdef Level level = <Level> self.levels[priority]
        return level.deadline if level.deadline_ttl == queue_ttl else 0

    cdef void note_deadline(self, int priority, int64_t queue_ttl, int64_t deadline) noexcept:
        cdef Level level = <Level> self.levels[priority]
        level.deadline = deadline
        level.deadline_ttl = queue_ttl
        if level is not self.kept:
            # Reading does not continue here; 256 levels must not hold a buffer each.
            level.store.rest_reading()

    cdef int advance(self, Place* place) except -1:
        cdef Level level = self.level_of(place)
        self.without(level)
        level.deadline = 0
        try:
            level.store.advance(place)
        finally:
            self.again(level)
        return 0

    cdef int settle(self, Place* place) except -1:
        cdef Level level = self.level_of(place)
        self.without(level)
        try:
            level.store.settle(place)
        finally:
            self.again(level)
        return 0

    cdef int requeue(self, Place* place) except -1:
        cdef Level level = self.level_of(place)
        self.without(level)
        level.deadline = 0
        try:
            level.store.requeue(place)
        finally:
            self.again(level)
        return 0

    def purge_part(self, uint32_t most) -> int:
        """As the contract says, of one of the levels."""
        cdef Level level
        for level in self.levels:
            if level is not None and level.store.requeued.count:
                self.without(level)
                level.deadline = 0
                purged = level.store.purge_part(most)
                self.again(level)
                return purged
        return 0

    def purge(self) -> int:
        cdef Level level
        purged = 0
        for level in self.levels:
            if level is not None and level.store.ready:
                self.without(level)
                level.deadline = 0
                purged += level.store.purge()
                self.again(level)
        return purged

    # -- the stores of the levels ------------------------------------------------------------------

    cdef list parts(self):
        return [None if level is None else (<Level> level).store for level in self.levels]

    cdef MessageStore part(self, int level):
        cdef Level found = self.levels[level]
        return found.store if found is not None else None

    cdef MessageStore part_of(self, uint32_t segment):
        cdef uint32_t priority = segment >> LEVEL_SHIFT
        return self.level(priority).store if priority <= self.max_priority else None

    cdef MessageStore part_for(self, Message* message):
        cdef uint32_t priority = priority_of(message)
        return self.part(priority if priority < self.max_priority else self.max_priority)

    cdef int take_out(self, int level) except -1:
        self.without(self.levels[level])
        (<Level> self.levels[level]).deadline = 0
        return 0

    cdef int put_in(self, int level) except -1:
        self.again(self.levels[level])
        return 0

    # -- recovery, rest and end --------------------------------------------------------------------

    cdef uint32_t unused_number(self) noexcept:
        """Below the level: what no level has given."""
        cdef Level level
        cdef uint32_t number = self.next_number
        cdef uint32_t next_number
        for level in self.levels:
            if level is not None:
                next_number = level.store.segments.next_number - (level.priority << LEVEL_SHIFT)
                if next_number > number:
                    number = next_number
        return number if number >> LEVEL_SHIFT == 0 else 1

    cdef void go_on_from(self, uint32_t number) noexcept:
        if number > self.next_number:
            self.next_number = number

    cdef int recovered(self) except -1:
        cdef Level level
        for level in self.levels:
            if level is not None:
                self.again(level)
                self.any_expires = self.any_expires or level.store.any_expires
        return 0

    def rest(self) -> None:
        cdef Level level
        self.refs.rest()
        for level in self.levels:
            if level is not None:
                level.store.rest()
        if self.kept is not None:
            self.kept.store.keep = self.keep

    def close(self) -> None:
        cdef Level level
        for level in self.levels:
            if level is not None:
                level.store.close()

    def delete(self) -> None:
        cdef Level level
        self.deleted = True
        self.kept = None
        for level in self.levels:
            if level is not None:
                level.store.delete()
        self.ready = self.ready_bytes = self.total = self.total_bytes = 0
        self.occupied = [0, 0, 0, 0]
        self.refs.end()
        self.touch = not_needed
        # The levels go when none of their files is in flight.
        self.folder.leave()

    # -- figures -----------------------------------------------------------------------------------

    def count_references(self) -> int:
        return sum([store.count_references() for store in self.parts() if store is not None])

    @property
    def segment_count(self) -> int:
        return sum([store.segment_count for store in self.parts() if store is not None])

    @property
    def disk_bytes(self) -> int:
        return sum([store.disk_bytes for store in self.parts() if store is not None])

    @property
    def disk_bytes_live(self) -> int:
        return sum([store.disk_bytes_live for store in self.parts() if store is not None])

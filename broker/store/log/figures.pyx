# cython: language_level=3
"""The memory of a store, and the facts about its first message: for pages and the API.

The functions here never wait, use a reader thread or change the store. Unknown values are None.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from broker.kernel.buffer cimport load16, load32, load64
from broker.kernel.message cimport HAS_ORIGIN, Place
from broker.store.commit.tail_memory cimport TAIL_COPIED
from broker.store.files.disk cimport read_now
from broker.store.files.file_list cimport is_open
from broker.store.files.record cimport AckEntry, ORIGIN_BYTES, RECORD_FIXED, RecordHead
from broker.store.files.spans cimport Span
from broker.store.log.contracts cimport MessageStore
from broker.store.log.damage cimport Damage
from broker.store.log.queue_store cimport QueueStore
from broker.store.log.read_buffer cimport ReadBuffer
from broker.store.log.requeued cimport Entry
from broker.store.log.sealed cimport Sealed
from broker.store.log.segments cimport Block, QueueDirectory, Segment, Segments
from broker.store.log.shared_refs cimport SharedRefs, place_key

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        Py_ssize_t tp_basicsize
    bint PyType_IS_GC(PyTypeObject* kind)

cdef enum:
    FIRST_READ = 1024            # bytes of a record that mostly hold all of its properties
    PROPERTIES_MAX = 160 << 10   # more than a frame holds
    NO_TIMESTAMP = -1
    TOO_SHORT = -2               # the bytes at hand end before it
    DAMAGED = -3
    GC_HEAD_BYTES = 16           # of CPython, before each object that its collector follows

# What a dict takes for one message that came back: key, count, and their places.
cdef uint64_t RETURN_BYTES = 112


cdef uint64_t size_of(type kind) noexcept:
    """What an object of a class of ours takes by itself, as `sys.getsizeof` says it."""
    cdef PyTypeObject* of = <PyTypeObject*> kind
    return <uint64_t> of.tp_basicsize + (GC_HEAD_BYTES if PyType_IS_GC(of) else 0)


# A list of 10,000 queues is ordered by memory: their parts, which lie all over the memory, are not
# touched for sizes that are the same in all.
cdef uint64_t FOLDER_BYTES = size_of(QueueDirectory)
cdef uint64_t PART_BYTES = size_of(QueueStore) + size_of(Segments) + size_of(SharedRefs)
cdef uint64_t READING_BYTES = size_of(ReadBuffer)
cdef uint64_t SEALED_BYTES = size_of(Sealed)
cdef uint64_t DAMAGE_BYTES = size_of(Damage)


cdef uint64_t part_memory(QueueStore store) noexcept:
    cdef uint64_t size = PART_BYTES
    cdef Block* block = store.segments.first_block
    cdef Segment* segment = store.segments.head
    while block != NULL:
        # Of a mapping, what nothing was written to costs nothing.
        size += block.capacity if block.capacity <= TAIL_COPIED else block.length
        size += sizeof(Block) + block.pending_capacity * sizeof(AckEntry)
        block = block.next
    while segment != NULL:
        size += (sizeof(Segment) + segment.pending_capacity * sizeof(AckEntry)
                 + segment.skip_count * sizeof(Span))
        segment = segment.next
    size += store.requeued.capacity * sizeof(Entry)
    if store.buffer is not None:
        size += READING_BYTES + store.buffer.capacity
    if store.sealed is not None:
        size += SEALED_BYTES
    if store.damage is not None:
        size += DAMAGE_BYTES
    if store.returns is not None:
        size += len(store.returns) * RETURN_BYTES
    return size


cdef uint64_t memory_of(MessageStore store) noexcept:
    """Bytes of memory: records, read buffers, and what is known of segments."""
    cdef uint64_t size
    cdef QueueStore part
    if type(store) is QueueStore:
        # Most are, and a list of 10,000 is ordered by this: no list of parts is made for them.
        return FOLDER_BYTES + part_memory(<QueueStore> store)
    size = FOLDER_BYTES + size_of(type(store))
    for part in store.parts():
        if part is not None:
            size += part_memory(part)
    return size


cdef bint add_resident(QueueStore store, uint64_t* count) noexcept:
    """Adds the messages whose records are in memory. False if the number is not known: settled
    messages of a block that consumers are reading are not counted."""
    cdef Block* block = store.segments.first_block
    cdef uint64_t found = 0
    while block != NULL:
        if block != store.segments.tail:
            return store.total == 0
        found += block.count - block.settled
        block = block.next
    count[0] += found
    return True


cdef object in_memory(MessageStore store):
    """How many messages have their records in memory; None where that is not known."""
    cdef uint64_t count = 0
    cdef QueueStore part
    for part in store.parts():
        if part is not None and not add_resident(part, &count):
            return None
    return count


cdef int64_t timestamp_in(const uint8_t* p, size_t length) noexcept:
    """The property `timestamp` of flags and list, seconds since 1970."""
    cdef size_t at = 2
    cdef uint16_t flags
    cdef int bit
    if length < 2:
        return TOO_SHORT
    flags = load16(p)
    if not flags >> 6 & 1:
        return NO_TIMESTAMP
    for bit in range(15, 6, -1):
        if not flags >> bit & 1:
            continue
        if bit == 13:
            if length < at + 4:
                return TOO_SHORT
            at += 4 + <size_t> load32(p + at)
        elif bit == 12 or bit == 11:
            at += 1
        else:
            if length < at + 1:
                return TOO_SHORT
            at += 1 + <size_t> p[at]
    return <int64_t> load64(p + at) if length >= at + 8 else TOO_SHORT


cdef int64_t timestamp_at(const uint8_t* record, size_t have) noexcept:
    """The same for a record of which only this many bytes are in memory."""
    cdef const RecordHead* head = <const RecordHead*> record
    cdef size_t offset = RECORD_FIXED
    cdef size_t end
    if have < RECORD_FIXED:
        return DAMAGED
    if head.flags & HAS_ORIGIN:
        offset += ORIGIN_BYTES
    offset += <size_t> head.exchange_length + head.routing_key_length
    end = <size_t> head.length + 4
    if end < offset + 2 + head.body_length:
        return DAMAGED
    end -= head.body_length
    if end > have:
        return timestamp_in(record + offset, have - offset) if have > offset else TOO_SHORT
    return timestamp_in(record + offset, end - offset)


cdef int64_t timestamp_on_disk(Segment* segment, uint32_t position) noexcept:
    """The same as far as the page cache has it; DAMAGED if it has not."""
    cdef int64_t found = DAMAGED
    cdef size_t wanted = FIRST_READ
    cdef uint8_t* record
    cdef ssize_t have
    if segment.messages == NULL or not is_open(segment.messages):
        return DAMAGED
    record = <uint8_t*> malloc(FIRST_READ + PROPERTIES_MAX)
    if record == NULL:
        return DAMAGED
    have = read_now(segment.messages.fd, record, wanted, position)
    if have > 0:
        found = timestamp_at(record, have)
        if found == TOO_SHORT and <size_t> have == wanted:
            have = read_now(
                segment.messages.fd, record, FIRST_READ + PROPERTIES_MAX, position)
            found = timestamp_at(record, have) if have > 0 else DAMAGED
    free(record)
    return found


cdef class Head:
    """The first message of a queue. What was read from disk is remembered by its place, which no
    other message gets; a place in memory may be given again."""

    cdef object timestamp_of(self, MessageStore store):
        """The property `timestamp` of the next message to deliver, seconds since 1970. None where
        it has none, or where it cannot be read without waiting."""
        cdef Place place
        cdef QueueStore part
        cdef Segment* segment
        cdef Block* block
        cdef int64_t found
        if not store.first_place(&place):
            return None
        part = <QueueStore> store.part_of(place.segment)
        segment = part.segments.find(place.segment)
        if segment == NULL:
            return None
        block = part.segments.block_of(segment, place.position)
        if block != NULL:
            found = timestamp_at(block.data + (place.position - block.start),
                                 block.length - (place.position - block.start))
            return found if found >= 0 else None
        if self.key == place_key(&place):
            return self.timestamp
        found = timestamp_on_disk(segment, place.position)
        if found == NO_TIMESTAMP or found >= 0:
            self.key = place_key(&place)
            self.timestamp = found if found >= 0 else None
        return found if found >= 0 else None

    cdef int64_t oldest_of(self, MessageStore store) except -2:
        """When the oldest ready message was published, ms since 1970: of those that come next, one
        for each priority. -1 where that cannot be read without waiting."""
        cdef int64_t oldest = -1
        cdef int64_t found
        cdef QueueStore part
        for part in store.parts():
            if part is not None and part.ready:
                found = self.published_at(part)
                if found >= 0 and (oldest < 0 or found < oldest):
                    oldest = found
        return oldest

    cdef int64_t published_at(self, QueueStore part) except -2:
        """When the next message of one log was published."""
        cdef Place place
        cdef Segment* segment
        cdef Block* block
        cdef RecordHead head
        if not part.first_place(&place):
            return -1
        segment = part.segments.find(place.segment)
        if segment == NULL:
            return -1
        block = part.segments.block_of(segment, place.position)
        if block != NULL:
            if block.length - (place.position - block.start) < RECORD_FIXED:
                return -1
            return (<RecordHead*> (block.data + (place.position - block.start))).timestamp
        if self.oldest_key == place_key(&place):
            return self.oldest
        if segment.messages == NULL or not is_open(segment.messages):
            return -1
        if read_now(segment.messages.fd, <uint8_t*> &head, RECORD_FIXED, place.position) < (
                <ssize_t> RECORD_FIXED):
            return -1
        self.oldest_key = place_key(&place)
        self.oldest = head.timestamp
        return self.oldest

# cython: language_level=3
"""A long walk over the ready messages of a queue, from which some are taken out of the middle.

Consumers are served beside it. A message that is taken leaves no trace for the others: the cursor
steps over its record, and the messages around it keep their order and are not marked as delivered.
What came after the walk began lies in later segments (`ends_of`) and is not looked at.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from broker.kernel.message cimport Message, Place, WAS_DELIVERED
from broker.store.log.contracts cimport EMPTY, FOUND, MessageStore, WAIT
from broker.store.log.queue_store cimport QueueStore
from broker.store.files.record cimport ACK_WATERMARK, HEADER_BYTES, record_bytes
from broker.store.log.segments cimport Block, Segment, Segments, WRITING
from broker.store.log.shared_refs cimport place_key
from broker.store.files.spans cimport Span


def ends_of(MessageStore store):
    """Marks the end of a queue: level -> number of a segment, in which whatever comes later lies or
    behind which it lies. Levels that are not there hold no message yet."""
    cdef QueueStore part
    cdef dict ends = {}
    for level, part in enumerate(store.parts()):
        if part is None:
            continue
        if part.segments.active != NULL and part.segments.active.count:
            part.roll()
        ends[level] = (part.segments.active.number if part.segments.active != NULL
                       else part.segments.next_number)
    return ends


def mark_exactly(MessageStore store):
    """A walk that marks is over: after a crash only what was delivered shall look so."""
    cdef QueueStore part
    if store.deleted:
        return
    for part in store.parts():
        if part is not None:
            part.mark_exactly()


cdef class Walk:
    """The ready messages of one store before `ends`, the next to deliver first, from the place `at`
    of `level` on (None: from the first). With `marks`, what is shown comes back as redelivered
    after a crash."""

    def __init__(self, MessageStore store, dict ends, bint marks, level=None, uint64_t at=0):
        self.store = store
        self.ends = ends
        self.marks = marks
        self.levels = sorted(each for each in ends if level is None or each <= level)
        self.level = self.levels.pop() if self.levels else -1
        self.at = at if level is None or self.level == level else 0

    cdef QueueStore part(self):
        """The store of the level at hand, or None."""
        return <QueueStore> self.store.part(self.level)

    cdef int next(self, Message* message, Place* place) except -1:
        """Points at the next message, the same one until it is `passed`. WAIT: a thread reads it,
        or a mark is written; ask again in a later turn. EMPTY: there is no other."""
        cdef QueueStore part
        cdef int found
        while self.level >= 0:
            part = self.part()
            if part is not None and part.ready:
                found = self.next_returned(part, message, place)
                if found == EMPTY:
                    found = self.next_unread(part, message, place)
                if found != EMPTY:
                    return found
            self.level = self.levels.pop() if self.levels else -1
            self.at = 0
            self.returned = None
        return EMPTY

    cdef void passed(self) noexcept:
        """The message that `next` showed is dealt with."""
        if self.is_returned:
            self.returned.pop()
        self.at += self.length

    cdef int next_returned(self, QueueStore part, Message* message, Place* place) except -1:
        """The next one that came back before the walk reached its level."""
        cdef uint64_t key
        cdef int found
        if self.returned is None:
            self.returned = part.requeued.copy()
        while self.returned.count:
            key = self.returned.entries[0].key
            # What consumers have taken since is theirs, even if it came back once more.
            if (key >= self.at and key > part.requeued.popped and part.requeued.count
                    and key >> 32 < <uint64_t> self.ends[self.level]
                    and part.segments.find(<uint32_t> (key >> 32)) != NULL):
                self.returned.first(place)
                found = part.read(place, message)
                if found == WAIT:
                    return WAIT
                if found == FOUND:
                    self.is_returned = True
                    self.at = key
                    self.length = place.length
                    return FOUND
                self.unreadable += 1
            self.returned.pop()
        return EMPTY

    cdef int next_unread(self, QueueStore part, Message* message, Place* place) except -1:
        """The next one behind the cursor and behind what was passed."""
        cdef Segments segments = part.segments
        cdef Segment* segment = segments.cursor
        cdef uint32_t position, number
        cdef int found
        if segment == NULL:
            return EMPTY
        position = segments.cursor_position
        if self.at > (<uint64_t> segment.number << 32 | position):
            number = <uint32_t> (self.at >> 32)
            segment = segments.find(number)
            if segment == NULL:
                segment = segments.cursor
                while segment != NULL and segment.number < number:
                    segment = segment.next
            if segment == NULL:
                return EMPTY
            position = <uint32_t> self.at if segment.number == number else HEADER_BYTES
        while segment != NULL and segment.number < <uint32_t> self.ends[self.level]:
            position = behind_skips(segment, position)
            if position < segment.length:
                found = self.show(part, segment, position, message, place)
                if found != EMPTY:
                    return found
                # Where the next record begins is not known; consumers find it when they are there.
                self.unreadable += 1
            segment = segment.next
            position = HEADER_BYTES
            if segment != NULL:
                self.at = <uint64_t> segment.number << 32 | position
        return EMPTY

    cdef int show(self, QueueStore part, Segment* segment, uint32_t position, Message* message,
                  Place* place) except -1:
        cdef int found
        if self.marks and part.durable and not self.is_marked(part, segment, position):
            return WAIT
        place.segment = segment.number
        place.position = position
        found = part.read(place, message)
        if found != FOUND:
            return found
        place.length = record_bytes(message)
        place.body_length = message.body_length
        place.redelivered = (position < segment.recovered_watermark
                             or (message.flags & WAS_DELIVERED) != 0)
        self.is_returned = False
        self.at = place_key(place)
        self.length = place.length
        return FOUND

    cdef bint is_marked(self, QueueStore part, Segment* segment, uint32_t position) except -1:
        """Whether the record would come back as redelivered after a crash; if not, that is asked
        for. One that is not written yet is written together with its mark."""
        cdef Block* block = part.segments.block_of(segment, position)
        if block != NULL and block.state < WRITING:
            if position >= segment.watermark:
                segment.watermark = segment.length
                part.note(segment, segment.watermark, <uint32_t> ACK_WATERMARK << 30)
            return True
        if position < (segment.watermark_flying if block != NULL and block.state == WRITING
                       else segment.watermark_safe):
            return True
        part.want_watermark(segment)
        return False

    # -- taking ------------------------------------------------------------------------------------

    cdef int take(self, Message* message, Place* place) except -1:
        """Takes the message at hand out of the ready ones. It counts as unacknowledged until it is
        settled."""
        cdef QueueStore part = self.part()
        cdef Segment* segment
        if part.refs.count:
            part.refs.show(place, message)
        self.store.take_out(self.level)
        try:
            if self.is_returned:
                part.requeued.take(place_key(place))
            else:
                segment = part.segments.find(place.segment)
                add_skip(part.segments, segment, place)
                segment.passed += 1
            part.pick(place)
        finally:
            self.store.put_in(self.level)
        self.store.lent += 1
        return 0

    cdef int put_back(self, Place* place, bint doubled) except -1:
        """The message that was just taken is ready again, as it was; as redelivered if it is
        `doubled`, or if the cursor came by meanwhile."""
        cdef QueueStore part = self.part()
        cdef Segment* segment = part.segments.find(place.segment)
        self.store.lent -= 1
        self.store.take_out(self.level)
        try:
            if self.is_returned or doubled or not drop_skip(part.segments, segment, place):
                part.requeue(place)
            else:
                part.put_back(place, segment)
        finally:
            self.store.put_in(self.level)
        return 0

    cdef int settle(self, Place* place) except -1:
        """A message that was taken is done with."""
        self.store.lent -= 1
        self.store.persister.hurry_acks()
        return self.store.settle(place)

    cdef uint32_t returns_of(self, Place* place) except? 0:
        """How often a message came back, where the queue counts that."""
        return self.store.returns_of(place)


cdef uint32_t skip_behind(Segment* segment, uint32_t position) noexcept:
    """How many skipped spans begin at a position or before it."""
    cdef uint32_t low = 0
    cdef uint32_t high = segment.skip_count
    cdef uint32_t middle
    while low < high:
        middle = (low + high) // 2
        if segment.skips[middle].position <= position:
            low = middle + 1
        else:
            high = middle
    return low


cdef uint32_t behind_skips(Segment* segment, uint32_t position) noexcept:
    """The first position from here on that is not skipped."""
    cdef uint32_t at = skip_behind(segment, position)
    cdef uint32_t end
    if at:
        end = segment.skips[at - 1].position + segment.skips[at - 1].length
        if end > position:
            position = end
    while at < segment.skip_count and segment.skips[at].position == position:
        position += segment.skips[at].length
        at += 1
    return position


cdef int add_skip(Segments segments, Segment* segment, Place* place) except -1:
    """The cursor shall step over a record. Spans that touch become one, but for one that the cursor
    has stepped over already."""
    cdef uint32_t at = skip_behind(segment, place.position)
    cdef uint32_t open = segments.cursor_skip if segment == segments.cursor else 0
    cdef uint32_t capacity = 8
    cdef Span* grown
    if at > open and (segment.skips[at - 1].position + segment.skips[at - 1].length
                      == place.position):
        segment.skips[at - 1].length += place.length
        return 0
    while capacity < segment.skip_count + 1:
        capacity *= 2
    # Of the same size it costs nothing.
    grown = <Span*> realloc(segment.skips, capacity * sizeof(Span))
    if grown == NULL:
        raise MemoryError("no memory for settled positions")
    segment.skips = grown
    memmove(&grown[at + 1], &grown[at], (segment.skip_count - at) * sizeof(Span))
    grown[at].position = place.position
    grown[at].length = place.length
    segment.skip_count += 1
    return 0


cdef bint drop_skip(Segments segments, Segment* segment, Place* place) noexcept:
    """Undoes the last `add_skip`. False if the cursor is past the record."""
    cdef uint32_t at
    cdef Span* span
    if segments.cursor == NULL or segment == NULL or segment.number < segments.cursor.number:
        return False
    if segment == segments.cursor and place.position < segments.cursor_position:
        return False
    at = skip_behind(segment, place.position)
    if at == 0:
        return False
    span = &segment.skips[at - 1]
    if span.position + span.length != place.position + place.length:
        return False
    span.length -= place.length
    if span.length == 0:
        memmove(span, span + 1, (segment.skip_count - at) * sizeof(Span))
        segment.skip_count -= 1
        if segment.skip_count == 0:
            free(segment.skips)
            segment.skips = NULL
    return True

# cython: language_level=3
"""What is recorded in one vhost, and the events that are written between its records.

An event is a record without a body, whose headers say what happened to a message and where that
lies: its place, 16 hexadecimal digits for the queue and 16 for the record in the queue's files. A
place is never used again, and the record of a publish names the places that it got. Events are
written as they happen, in no message's round: they hold up neither acks nor deliveries. While much
waits for the disk they are given up, and a record says how many.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from broker.kernel cimport clock
from broker.kernel.buffer cimport Buffer, store16, store32, store64
from broker.kernel.contracts cimport Consumer, Exchange, Queue
from broker.kernel.message cimport Message, PERSISTENT, Place, set_parts
from broker.kernel.recording cimport Observer
from broker.queues.classic cimport ClassicQueue
from broker.queues.stream cimport StreamQueue
from broker.store.commit.persister cimport Persister
from broker.store.files.record cimport record_bytes
from broker.store.log.shared_refs cimport place_key

from broker.features.history.fields import way_fields
from broker.fields.codec import octets
from broker.schema.message_history import (
    CONNECTION, CONSUMER, COUNT, EVENT, EVENTS, GAP, GAP_PLACE, PLACE, QUEUE, QUEUE_COUNT,
    QUEUES_MAX, SINCE, USER,
)

cdef extern from "<stdio.h>" nogil:
    int snprintf(char* text, size_t size, const char* form, ...)


cdef enum:
    HEADERS_FLAG = 1 << 13
    TABLE = 2                    # where the length of the headers stands
    CLIENTS_MAX = 1024           # names of connections that are kept ready to be written
    # Ways whose headers are kept ready, about 800 bytes each. One to many queues counts as several.
    WAYS_MAX = 4096
    QUEUES_A_WAY = 50

cdef bytes event_header = octets(EVENT)
cdef bytes place_header = octets(PLACE)
cdef bytes queue_header = octets(QUEUE)
cdef bytes consumer_header = octets(CONSUMER)
cdef bytes connection_header = octets(CONNECTION)
cdef bytes user_header = octets(USER)
cdef bytes queue_count_header = octets(QUEUE_COUNT)
cdef bytes count_header = octets(COUNT)
cdef bytes since_header = octets(SINCE)
cdef tuple names = tuple([octets(name) for name in EVENTS])


cdef void put_place(char* text, uint64_t incarnation, uint64_t place) noexcept:
    """Writes PLACE_DIGITS digits."""
    cdef char digits[33]
    cdef int i
    snprintf(digits, 33, b"%016llx%016llx", <unsigned long long> incarnation,
             <unsigned long long> place)
    for i in range(32):
        text[i] = digits[i]


cdef int add_text(Buffer out, bytes name, const void* text, size_t length) except -1:
    """A header that is a string."""
    cdef uint8_t* p = out.room(6 + len(name))
    p[0] = <uint8_t> len(name)
    out.length += 1
    out.add(<const char*> name, len(name))
    p = out.room(5)
    p[0] = b"S"
    store32(p + 1, <uint32_t> length)
    out.length += 5
    return out.add(text, length)


cdef int add_number(Buffer out, bytes name, int64_t number) except -1:
    cdef uint8_t* p = out.room(10 + len(name))
    p[0] = <uint8_t> len(name)
    out.length += 1
    out.add(<const char*> name, len(name))
    p = out.room(9)
    p[0] = b"l"
    store64(p + 1, <uint64_t> number)
    out.length += 9
    return 0


cdef int add_places(Buffer out, tuple targets) except -1:
    """The header x-history-places: for each queue where it has put the message at hand, an empty
    text for one that did not store it, or is not observed."""
    cdef size_t start
    cdef uint8_t* p
    cdef char text[PLACE_DIGITS]
    cdef uint32_t length
    cdef QueueObserver observer
    out.add(b"\x10x-history-placesA\0\0\0\0", 22)
    start = out.length
    for target in targets[:QUEUES_MAX]:
        length = 0
        if isinstance(target, StreamQueue):
            put_place(text, (<StreamQueue> target).incarnation,
                      (<StreamQueue> target).store.next_offset - 1)
            length = PLACE_DIGITS
        elif isinstance(getattr(target, "observer", None), QueueObserver):
            observer = <QueueObserver> target.observer
            if observer.stored:
                put_place(text, observer.incarnation, observer.stored)
                length = PLACE_DIGITS
        p = out.room(5 + length)
        p[0] = b"S"
        store32(p + 1, length)
        out.length += 5
        out.add(text, length)
    store32(out.data + start - 4, <uint32_t> (out.length - start))
    return 0


cdef tuple observed(Exchange exchange, tuple targets):
    """The queues of a route, but for what holds its messages back; None if of none of them it is
    kept what happens to its messages."""
    holding = getattr(exchange, "holding", None)
    reached = tuple([target for target in targets if target is not holding])
    for target in reached:
        if getattr(target, "observer", None) is not None:
            return reached
    return None


cdef class Way:
    """What is recorded of the messages that an exchange leads to the same queues. `fields`: headers
    behind those of the publisher, by outcome."""

    def __init__(self, int level, tuple places, list fields):
        self.level = level
        self.places = places
        self.fields = fields


cdef class Book:
    """`memory()` says how many bytes may wait for the disk before events are given up."""

    def __init__(self, Persister persister, memory):
        self.persister = persister
        self.memory = memory
        self.levels = {}
        self.clients = {}
        self.ways = {}
        self.out = Buffer()

    cdef Way way(self, Exchange exchange, tuple targets):
        """Known for all publishers together: one that goes through many queues in turn finds the
        next one's here."""
        cdef dict ways = self.ways.get(exchange)
        cdef Way way = None if ways is None else ways.get(targets)
        cdef int level
        if way is not None:
            return way
        level = self.levels.get(exchange, OFF)
        for target in targets:
            level = max(level, <int> self.levels.get(target, OFF))
        if level == OFF:
            way = Way(OFF, None, None)
        else:
            way = Way(level, observed(exchange, targets),
                      way_fields(exchange, targets, level == FULL))
        if self.way_count >= WAYS_MAX:
            self.forget_ways()
        self.ways.setdefault(exchange, {})[targets] = way
        self.way_count += 1 + len(targets) // QUEUES_A_WAY
        return way

    def forget_ways(self) -> None:
        """They are asked for again with the next messages."""
        self.ways.clear()
        self.way_count = 0
        self.version += 1

    def set_level(self, owner, int level) -> None:
        """Of an exchange or a queue."""
        if level == self.levels.get(owner, OFF):
            return
        if level == OFF:
            del self.levels[owner]
        else:
            self.levels[owner] = level
        self.forget_ways()

    def observe(self, queue, bint on) -> None:
        """Whether what happens to the messages of a queue is kept, too."""
        if on != (queue.observer is not None):
            queue.observer = QueueObserver(self, queue) if on else None
            self.forget_ways()

    def add_event(self, int event, str place, str queue, tuple targets=()) -> None:
        """An event that no queue has told. `place` is one, or a queue's part of one."""
        cdef bytes digits = place.encode()
        clock.refresh()
        if self.has_room():
            self.begin(<bytes> names[event], digits, <uint32_t> len(digits), octets(queue))
            if targets:
                self.add_queues(targets)
            self.finish(b"", octets(queue))

    cdef bint has_room(self) except -1:
        """Whether one more event may be kept; if not it is counted."""
        if self.stream is None:
            return False
        if self.persister.tail_bytes > <uint64_t> self.memory():
            if not self.missing:
                self.missing_since = clock.now_ms
            self.missing += 1
            self.events_lost += 1
            return False
        if self.missing:
            self.note_missing()
        return True

    cdef int begin(self, bytes event, const char* place, uint32_t digits, bytes queue) except -1:
        """The headers that every event has."""
        cdef Buffer out = self.out
        out.length = 0
        store16(out.room(TABLE + 4), HEADERS_FLAG)
        out.length = TABLE + 4
        add_text(out, event_header, <const char*> event, len(event))
        add_text(out, place_header, place, digits)
        return add_text(out, queue_header, <const char*> queue, len(queue))

    cdef int add_client(self, who) except -1:
        """Whom a message went to: a consumer, or a getter."""
        cdef Buffer out = self.out
        cdef bytes tag, fields
        cdef size_t start
        if isinstance(who, Consumer):
            connection = (<Consumer> who).channel.connection
            tag = (<Consumer> who).wire_tag
            if len(tag) > 1:
                add_text(out, consumer_header, <const char*> tag + 1, len(tag) - 1)
        else:
            connection = getattr(getattr(who, "channel", None), "connection", None)
        name = getattr(connection, "name", None)
        if not isinstance(name, str):
            return add_text(out, connection_header, b"HTTP API", 8)
        # Another user may come from the same address and port later.
        client = name, getattr(connection, "user", None)
        fields = self.clients.get(client)
        if fields is not None:
            return out.add(<const char*> fields, len(fields))
        start = out.length
        tag = octets(name)
        add_text(out, connection_header, <const char*> tag, len(tag))
        tag = octets(client[1] or "")
        add_text(out, user_header, <const char*> tag, len(tag))
        if len(self.clients) >= CLIENTS_MAX:
            self.clients.clear()
        self.clients[client] = out.data[start:out.length]
        return 0

    cdef int add_queues(self, targets) except -1:
        """The queues that a message went to, and where it lies in them."""
        cdef Buffer out = self.out
        cdef size_t start
        cdef bytes name
        cdef uint8_t* p
        cdef tuple all = tuple(targets)
        out.add(b"\x10x-history-queuesA\0\0\0\0", 22)
        start = out.length
        for target in all[:QUEUES_MAX]:
            name = octets(getattr(target, "name", ""))
            p = out.room(5)
            p[0] = b"S"
            store32(p + 1, <uint32_t> len(name))
            out.length += 5
            out.add(<const char*> name, len(name))
        store32(out.data + start - 4, <uint32_t> (out.length - start))
        add_number(out, queue_count_header, len(all))
        return add_places(out, all)

    cdef int finish(self, bytes exchange, bytes routing_key) except -1:
        cdef Buffer out = self.out
        cdef Message message
        set_parts(&message, exchange, routing_key, b"", b"")
        store32(out.data + TABLE, <uint32_t> (out.length - TABLE - 4))
        message.properties = out.data
        message.properties_length = <uint32_t> out.length
        message.flags = PERSISTENT
        message.timestamp = clock.now_ms
        self.events += 1
        self.stream.publish(&message, False)
        return 0

    cdef int note_missing(self) except -1:
        """Says how many events were given up before this one."""
        cdef uint64_t count = self.missing
        cdef bytes place = octets(GAP_PLACE)
        self.missing = 0
        self.begin(octets(GAP), place, <uint32_t> len(place), b"")
        add_number(self.out, count_header, <int64_t> count)
        add_number(self.out, since_header, self.missing_since)
        return self.finish(b"", b"")


cdef class QueueObserver(Observer):
    """Of one queue; the events go into `book`."""

    def __init__(self, Book book, queue):
        self.book = book
        self.name = octets(queue.name)
        self.incarnation = queue.incarnation

    cdef int took(self, Queue queue, Message* message) except -1:
        self.stored = 0
        if message != NULL:
            self.stored = (<ClassicQueue> queue).store.part_for(message).end() - (
                record_bytes(message))
        return 0

    cdef int saw(self, int event, Place* place, who) except -1:
        cdef char text[PLACE_DIGITS]
        if not self.book.has_room():
            return 0
        put_place(text, self.incarnation, 0 if place == NULL else place_key(place))
        # What happened to all that was ready has the queue's part alone.
        self.book.begin(<bytes> names[event], text, PLACE_DIGITS if place != NULL else 16,
                        self.name)
        if who is not None:
            self.book.add_client(who)
        return self.book.finish(b"", self.name)

    cdef int passed_on(self, int event, uint64_t place, targets, bytes exchange,
                       bytes routing_key) except -1:
        cdef char text[PLACE_DIGITS]
        if not place or not self.book.has_room():
            return 0
        put_place(text, self.incarnation, place)
        self.book.begin(<bytes> names[event], text, PLACE_DIGITS, self.name)
        self.book.add_queues(targets)
        return self.book.finish(exchange, routing_key)

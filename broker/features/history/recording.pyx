# cython: language_level=3
"""Writes the records of a history, without an object for a message that goes the way of the one
before it.

A record is the message itself, as its queues have it, with headers in front of its own that say
what came of it; with HEADERS its body is left out. It is published to the stream within the same
call as the message to its queues, so that both are part of one round. The headers in front are
nearly the same for all messages that go one way: most records share them with one before
(broker/store/files/shared_headers.pyx).
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.string cimport memcmp, memcpy

from broker.features.history.book cimport Book, HEADERS, OFF, PLACE_DIGITS, Way, add_places
from broker.kernel cimport clock
from broker.kernel.buffer cimport Buffer, load16, load32, store16, store32, store64
from broker.kernel.contracts cimport Exchange, NEEDS_SYNC, REJECTED
from broker.kernel.headers cimport header_place, header_table
from broker.kernel.message cimport Message, PERSISTENT, set_parts
from broker.store.files.record cimport OFFSET_BYTES, SHARING_BYTES, record_bytes
from broker.store.streams.sharing cimport refer
from broker.store.streams.store cimport SharedHeaders

from broker.features.history.fields import SIZE_BYTES, publisher_fields
from broker.fields.history_headers import without_ours
from broker.schema.message_history import QUEUES_MAX

cdef extern from "<string.h>" nogil:
    void* memmem(const void* data, size_t length, const void* needle, size_t needle_length)


cdef enum:
    HEADERS_FLAG = 1 << 13
    TABLE_BYTES = 4              # the length of the headers
    SHARED_MOST = 0xFFFF         # bytes of headers that a record can share
    SIZE_MOST = 32               # of the header that says how large a body is
    FIRST_FLAGS = 1 << 14        # flags from here on: a property stands before the headers

cdef size_t size_bytes = SIZE_BYTES
cdef size_t places_most = 32 + QUEUES_MAX * (5 + PLACE_DIGITS)

cdef enum:
    ROUTED = 0                   # places in `fields`
    UNROUTABLE = 1
    REFUSED = 2


cdef class ChannelRecording(Recording):
    """Records what one publisher does: a channel, or what else publishes."""

    def __init__(self, Book book, str user, str connection):
        self.book = book
        self.publisher = publisher_fields(user, connection)
        self.out = Buffer()
        self.shared_fields = [None] * WAYS_SHARED

    cdef int look(self, Exchange exchange, tuple targets) except -1:
        """Whether what goes this way is recorded, and the headers for that."""
        self.exchange, self.targets, self.version = exchange, targets, self.book.version
        self.way = self.book.way(exchange, targets)
        return 0

    cdef int record_run(self, Message* messages, uint32_t count, Exchange exchange, tuple targets,
                        int answer) except -1:
        cdef uint32_t done = 0
        cdef uint32_t alike
        cdef int result = 0
        while done < count:
            alike = 0
            if (exchange is self.exchange and targets is self.targets
                    and self.version == self.book.version and self.way.level != OFF
                    and self.way.places is None):
                alike = self.record_alike(
                    messages + done, count - done,
                    <bytes> self.way.fields[REFUSED if answer & REJECTED else ROUTED])
            if alike:
                result = NEEDS_SYNC
            else:
                result |= self.record(&messages[done], exchange, targets, answer)
                alike = 1
            done += alike
        return result

    cdef uint32_t record_alike(self, Message* messages, uint32_t count, bytes fields) except? 0:
        """Records the first ones together, which have no headers and bodies of one size, if they
        share all headers but that size with a record before. Returns how many; 0: the first one has
        to be recorded alone."""
        cdef Book book = self.book
        cdef SharedHeaders* shared = &self.shared[self.last_way]
        cdef size_t length = len(self.publisher) + len(fields)
        cdef uint32_t size = messages[0].body_length
        cdef uint32_t added = 0
        cdef uint32_t alike = 0
        cdef uint8_t table[TABLE_BYTES + SIZE_MOST]
        if (book.stream is None or self.shared_fields[self.last_way] is not fields
                or length > SHARED_MOST):
            return 0
        while (alike < count and messages[alike].body_length == size
               and messages[alike].properties_length >= 2
               and load16(messages[alike].properties) < FIRST_FLAGS):
            alike += 1
        if size != self.shared_sizes[self.last_way]:
            added = <uint32_t> size_bytes
            memcpy(table + TABLE_BYTES, <const char*> fields + len(fields) - added, added - 8)
            store64(table + TABLE_BYTES + added - 8, size)
        store32(table, added)
        shared.length = <uint16_t> (length - added)
        if not alike or not refer(book.stream.store, shared, 1) or not book.stream.publish_alike(
                messages, alike, shared, table, TABLE_BYTES + added, self.way.level != HEADERS):
            return 0
        book.records += alike
        if self.way.level != HEADERS:
            book.record_bytes += <uint64_t> alike * size
        return alike

    cdef int record(self, Message* message, Exchange exchange, tuple targets,
                    int answer) except -1:
        cdef Book book = self.book
        cdef Message kept
        cdef bytes own, fields
        cdef SharedHeaders* shared
        cdef Way way
        if (exchange is not self.exchange or targets is not self.targets
                or self.version != book.version):
            self.look(exchange, targets)
        way = self.way
        if way.level == OFF or book.stream is None:
            return 0
        kept = message[0]
        if (message.properties_length > 2 and load16(message.properties) & HEADERS_FLAG and memmem(
                message.properties, message.properties_length, b"x-history-", 10) != NULL):
            own = without_ours(message.properties[:message.properties_length])
            kept.properties = <const uint8_t*> <char*> own
            kept.properties_length = <uint32_t> len(own)
        kept.large = NULL
        kept.flags = message.flags & PERSISTENT
        if way.level == HEADERS:
            kept.body = b""
            kept.body_length = 0
        book.records += 1
        book.record_bytes += kept.body_length
        fields = <bytes> way.fields[
            UNROUTABLE if not targets else REFUSED if answer & REJECTED else ROUTED]
        shared = self.share(&kept, fields, message.body_length)
        if not self.put_headers(&kept, fields, message.body_length,
                                shared.length if shared != NULL and shared.back else 0):
            shared = NULL
        return book.stream.publish_sharing(
            &kept, False, message.properties, message.properties_length, shared)

    def keep(self, Exchange exchange, bytes name, bytes routing_key, bytes properties, bytes body,
             tuple targets, int answer) -> int:
        cdef Message message
        set_parts(&message, name, routing_key, properties, body)
        message.flags = PERSISTENT
        clock.refresh()
        message.timestamp = clock.now_ms
        return self.record(&message, exchange, targets, answer)

    cdef int place_of(self, bytes fields) noexcept:
        """Where in `shared` these headers stand; if they do not, where they are put."""
        cdef int i
        if self.shared_fields[self.last_way] is not fields:
            for i in range(WAYS_SHARED):
                if self.shared_fields[i] is fields:
                    self.last_way = i
                    break
            else:
                self.last_way = self.next_place
                self.next_place = (self.next_place + 1) % WAYS_SHARED
        return self.last_way

    cdef SharedHeaders* share(self, Message* message, bytes fields,
                              uint32_t body_length) except? NULL:
        """Decides whether the record of this message refers to one before for the headers of the
        publisher and these, with the size of the body if it is the same; `back` of the result says
        so. NULL: they are too long to be shared."""
        cdef size_t length = len(self.publisher) + len(fields)
        cdef int i = self.place_of(fields)
        cdef SharedHeaders* shared = &self.shared[i]
        if length > SHARED_MOST:
            return NULL
        shared.back = 0
        if self.shared_fields[i] is fields:
            shared.length = <uint16_t> (
                length if body_length == self.shared_sizes[i] else length - size_bytes)
            refer(
                self.book.stream.store, shared, record_bytes(message) + OFFSET_BYTES
                + SHARING_BYTES + TABLE_BYTES + length + places_most)
        if not shared.back:
            # No record has them until this one is in the stream, which may fail.
            shared.store = 0
            self.shared_fields[i], self.shared_sizes[i] = fields, body_length
        return shared

    cdef bint put_headers(self, Message* message, bytes fields, uint32_t body_length,
                          size_t skipped) except -1:
        """Replaces the properties by ones with headers in front: those of the publisher and these,
        the last of which is x-history-bytes, but for the first `skipped` bytes, which are shared.
        They live in `out`, which keeps what is the same for the next message. False: the properties
        cannot be read, and stay."""
        cdef Buffer out = self.out
        cdef const uint8_t* properties = message.properties
        cdef const uint8_t* place
        cdef uint16_t flags
        cdef uint32_t own = 0
        cdef uint32_t added = <uint32_t> (len(self.publisher) + len(fields) - skipped)
        cdef size_t before, left
        if message.properties_length < 2:
            return False
        flags = load16(properties)
        place = properties + 2 if flags < FIRST_FLAGS else header_place(
            properties, message.properties_length)
        if place == NULL:
            return False
        before = place - properties
        if flags & HEADERS_FLAG:
            if header_table(properties, message.properties_length) == NULL:
                return False
            own = load32(place)
            place += 4
        left = message.properties_length - (place - properties)
        if (fields is not self.written or skipped != self.skipped or before != self.before
                or before > 2 and memcmp(out.data + 2, properties + 2, before - 2) != 0):
            self.put_same(properties, before, fields, skipped)
        if added:
            store64(out.data + before + added - 4, body_length)
        out.length = before + 4 + added
        if self.way.places is not None:
            add_places(out, self.way.places)
            added = <uint32_t> (out.length - before - 4)
        memcpy(out.room(left), place, left)
        out.length += left
        store16(out.data, flags | HEADERS_FLAG)
        store32(out.data + before, own + added)
        message.properties = out.data
        message.properties_length = <uint32_t> out.length
        return True

    cdef int put_same(self, const uint8_t* properties, size_t before, bytes fields,
                      size_t skipped) except -1:
        """Begins `out` with what is in front of the headers, those of the publisher, and these, of
        which the first `skipped` bytes are shared."""
        cdef Buffer out = self.out
        cdef size_t own = len(self.publisher)
        cdef size_t added = own + len(fields) - skipped
        cdef size_t first = own - skipped if skipped < own else 0
        cdef uint8_t* p
        out.length = 0
        p = out.room(before + 4 + added)
        memcpy(p, properties, before)
        p += before + 4
        memcpy(p, <const char*> self.publisher + own - first, first)
        memcpy(p + first, <const char*> fields + len(fields) - (added - first), added - first)
        self.written, self.before, self.skipped = fields, before, skipped
        return 0

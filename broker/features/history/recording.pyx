# cython: language_level=3
"""Writes the records of a history, without an object for a message that goes the way of the one
before it.

A record is the message itself, as its queues have it, with headers in front of its own that say
what came of it; with HEADERS its body is left out. It is published to the stream within the same
call as the message to its queues, so that both are part of one round.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.string cimport memcmp, memcpy

from broker.features.history.book cimport Book, HEADERS, OFF, Way, add_places
from broker.kernel cimport clock
from broker.kernel.buffer cimport Buffer, load16, load32, store16, store32, store64
from broker.kernel.contracts cimport Exchange, REJECTED
from broker.kernel.headers cimport header_place, header_table
from broker.kernel.message cimport Message, PERSISTENT, set_parts

from broker.features.history.fields import publisher_fields
from broker.fields.history_headers import without_ours

cdef extern from "<string.h>" nogil:
    void* memmem(const void* data, size_t length, const void* needle, size_t needle_length)


cdef enum:
    HEADERS_FLAG = 1 << 13
    FIRST_FLAGS = 1 << 14        # flags from here on: a property stands before the headers

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

    cdef int look(self, Exchange exchange, tuple targets) except -1:
        """Whether what goes this way is recorded, and the headers for that."""
        self.exchange, self.targets, self.version = exchange, targets, self.book.version
        self.way = self.book.way(exchange, targets)
        return 0

    cdef int record(self, Message* message, Exchange exchange, tuple targets,
                    int answer) except -1:
        cdef Book book = self.book
        cdef Message kept
        cdef bytes own
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
        self.put_headers(
            &kept, <bytes> way.fields[
                UNROUTABLE if not targets else REFUSED if answer & REJECTED else ROUTED])
        kept.large = NULL
        kept.flags = message.flags & PERSISTENT
        if way.level == HEADERS:
            kept.body = b""
            kept.body_length = 0
        book.records += 1
        book.record_bytes += kept.body_length
        return book.stream.publish_noting(
            &kept, False, message.properties, message.properties_length)

    def keep(self, Exchange exchange, bytes name, bytes routing_key, bytes properties, bytes body,
             tuple targets, int answer) -> int:
        cdef Message message
        set_parts(&message, name, routing_key, properties, body)
        message.flags = PERSISTENT
        clock.refresh()
        message.timestamp = clock.now_ms
        return self.record(&message, exchange, targets, answer)

    cdef int put_headers(self, Message* message, bytes fields) except -1:
        """Replaces the properties by ones with these headers in front, the last of which is
        x-history-bytes; they live in `out`, which keeps what is the same for the next message."""
        cdef Buffer out = self.out
        cdef const uint8_t* properties = message.properties
        cdef const uint8_t* place
        cdef uint16_t flags
        cdef uint32_t own = 0
        cdef uint32_t added = <uint32_t> (len(self.publisher) + len(fields))
        cdef size_t before, left
        if message.properties_length < 2:
            return 0
        flags = load16(properties)
        place = properties + 2 if flags < FIRST_FLAGS else header_place(
            properties, message.properties_length)
        if place == NULL:
            return 0
        before = place - properties
        if flags & HEADERS_FLAG:
            if header_table(properties, message.properties_length) == NULL:
                return 0
            own = load32(place)
            place += 4
        left = message.properties_length - (place - properties)
        if (fields is not self.written or before != self.before
                or before > 2 and memcmp(out.data + 2, properties + 2, before - 2) != 0):
            self.put_same(properties, before, fields)
        store64(out.data + before + added - 4, message.body_length)
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
        return 0

    cdef int put_same(self, const uint8_t* properties, size_t before, bytes fields) except -1:
        """Begins `out` with what is in front of the headers, those of the publisher, and these."""
        cdef Buffer out = self.out
        cdef size_t own = len(self.publisher)
        cdef uint8_t* p
        out.length = 0
        p = out.room(before + 4 + own + len(fields))
        memcpy(p, properties, before)
        memcpy(p + before + 4, <const char*> self.publisher, own)
        memcpy(p + before + 4 + own, <const char*> fields, len(fields))
        self.written, self.before = fields, before
        return 0

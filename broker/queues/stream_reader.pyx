# cython: language_level=3
"""One consumer of a stream: its place in the log, what it was given and did not ack yet, and what
it gave back.

To its channel a reader is the queue that it consumes from: acks and requeues come here and concern
no other reader. It delivers in its own share of the turn, a bounded number of records each time.
"""

import bisect

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from broker.kernel.buffer cimport Buffer
from broker.kernel.contracts cimport Consumer, Queue
from broker.kernel.large_body cimport body_of
from broker.kernel.message cimport Message, Place
from broker.kernel.turn cimport Turn
from broker.queues.stream_filter cimport StreamFilter
from broker.queues.stream_headers cimport put_offset
from broker.store.log.segments import not_needed
from broker.store.streams.cursor cimport AT_END, LATER, StreamCursor, WAIT
from broker.store.streams.store cimport StreamStore
from broker.store.streams.summary cimport Summary

cdef enum:
    TURN_RECORDS = 512           # at most read for one reader in one turn of the loop
    TURN_RECORDS_ALL = 2048      # shared by all readers of a stream,
    TURN_RECORDS_LEAST = 16      # at least this many each
    RECORD_BYTES = 1024          # larger ones count as several


cdef class Readers:
    """All readers of one stream, and what they did together."""

    def __init__(self, Turn turn, StreamStore store):
        self.turn = turn
        self.store = store
        self.stamped = Buffer()
        self.all = []
        self.expected = []
        self.waiting = []

    @property
    def segments_skipped(self):
        cdef StreamReader reader
        cdef uint64_t skipped = self.skipped_before
        for reader in self.all:
            skipped += reader.cursor.segments_skipped
        return skipped

    cdef uint32_t share(self) noexcept:
        """Records that each reader may take in a turn, so that a turn stays short however many
        readers there are."""
        cdef uint32_t most = TURN_RECORDS_ALL // (<uint32_t> len(self.all) + 1)
        if most > TURN_RECORDS:
            return TURN_RECORDS
        return most if most > TURN_RECORDS_LEAST else TURN_RECORDS_LEAST

    def wake(self):
        """There is more to read."""
        cdef StreamReader reader
        cdef list waiting = self.waiting
        self.waiting = []
        for reader in waiting:
            reader.is_waiting = False
            reader.touch()

    def resume(self):
        """The stream was resumed after a pause: every reader may continue."""
        cdef StreamReader reader
        self.paused = False
        for reader in self.all:
            reader.touch()


cdef class FilteredCursor(StreamCursor):
    """A cursor that passes over sealed segments without a message that the filter takes."""

    cdef bint passes(self, Summary segment) except -1:
        return not self.filter.may_take(segment)


cdef int go_to_start(StreamCursor cursor, start) except -1:
    """Where a reader begins: `start` is a `stream_arguments.Start`."""
    cdef StreamStore store = cursor.store
    cdef uint64_t first = store.first_offset
    cdef uint64_t next_offset = store.next_offset
    kind, value = start
    if kind == "time":
        return cursor.go_to_time(value)
    if kind == "first":
        return cursor.go_to(first)
    if kind == "next":
        return cursor.go_to(next_offset)
    if kind == "last":
        value = -1
    if value < 0:
        value += next_offset
    return cursor.go_to(max(first, min(value, next_offset)))


cdef class StreamReader(Queue):
    """A reader of `stream`; `tag` is given if the server keeps its place under that consumer
    tag."""

    def __init__(self, stream, Readers readers, start, StreamFilter filter, tag):
        cdef FilteredCursor filtered
        self.stream = stream
        self.readers = readers
        self.filter = filter
        self.returned = []
        if filter is None:
            self.cursor = StreamCursor(readers.store, self.wake)
        else:
            filtered = FilteredCursor(readers.store, self.wake)
            filtered.filter = filter
            filtered.passing = True
            self.cursor = filtered
        if tag is not None:
            # Replies wait for the acks before them, so that a client knows its place is kept.
            self.durable = True
            self.tracked = readers.store.offsets.track(tag.encode("utf-8", "surrogateescape"))
        if self.tracked is not None and self.tracked.known:
            self.cursor.go_to(self.tracked.offset + 1)
        else:
            go_to_start(self.cursor, start)
        self.frontier = self.cursor.offset

    def __dealloc__(self):
        free(self.unacked)

    def __getattr__(self, name):
        # Names, figures and properties are the stream's.
        return getattr(self.stream, name)

    @property
    def offset(self):
        """Of the next message it did not get yet."""
        return self.frontier

    @property
    def lag(self):
        """Messages between its place and the end."""
        cdef StreamStore store = self.readers.store
        cdef uint64_t place = max(self.frontier, <uint64_t> store.first_offset)
        return store.next_offset - place if store.next_offset > place else 0

    def reader_figures(self) -> dict:
        """What only a stream's consumer has, for the API."""
        return {
            "offset": self.frontier,
            "lag": self.lag,
            "segments_skipped": self.cursor.segments_skipped,
            "filtered": self.filter is not None,
            "tracked": self.tracked is not None,
        }

    # -- consumer ----------------------------------------------------------------------------------

    def expect_consumer(self, Consumer consumer) -> None:
        """A consumer is accepted: it counts from now on, and gets messages once it is added."""
        self.readers.expected.append(consumer)

    def add_consumer(self, Consumer consumer) -> None:
        """basic.consume-ok is sent: deliveries may begin."""
        self.stop_expecting(consumer)
        self.consumer = consumer
        self.readers.all.append(self)
        if self.tracked is not None:
            self.tracked.readers += 1
        self.touch()

    def remove_consumer(self, Consumer consumer) -> None:
        """The consumer ends; what it did not ack stays where it is."""
        consumer.stop()
        self.stop_expecting(consumer)
        if self in self.readers.all:
            self.readers.all.remove(self)
            if self.tracked is not None:
                self.tracked.readers -= 1
            self.readers.skipped_before += self.cursor.segments_skipped
        if self.is_waiting:
            self.is_waiting = False
            self.readers.waiting.remove(self)
        self.returned = []
        # They and the reader would refer to each other for ever.
        self.consumer = None
        self.cursor.wake = not_needed

    cdef int stop_expecting(self, Consumer consumer) except -1:
        if consumer in self.readers.expected:
            self.readers.expected.remove(consumer)
        return 0

    def wake(self):
        """What the cursor waited for is there, or cannot be had."""
        trouble = self.cursor.trouble
        if trouble is not None:
            self.cursor.trouble = None
            if self.consumer is not None and self.consumer.active:
                self.stream.cannot_read(self, self.consumer, trouble)
                return
        self.touch()

    cdef int touch(self) except -1:
        if not self.pending:
            self.readers.turn.touch_queue(self)
        return 0

    # -- delivering --------------------------------------------------------------------------------

    cdef int work(self) except -1:
        """Delivers as many messages as there is room for; a long backlog continues in the next
        turn."""
        cdef Readers readers = self.readers
        cdef StreamCursor cursor = self.cursor
        cdef Consumer consumer = self.consumer
        cdef Message message
        cdef Place place
        cdef uint64_t target, offset
        cdef uint32_t records = 0
        cdef uint64_t size = 0
        cdef uint32_t most = readers.share()
        cdef bint again
        cdef int found
        if readers.paused:
            return 0
        while consumer is not None and consumer.active and not readers.store.deleted:
            if records >= most or size >= most * RECORD_BYTES:
                self.touch()
                break
            if not consumer.channel.can_take(consumer):
                break
            again = len(self.returned) > 0
            target = <uint64_t> self.returned[0] if again else self.frontier
            # Only what comes for the first time is filtered.
            cursor.passing = self.filter is not None and not again
            if cursor.offset != target:
                cursor.go_to(target)
            found = cursor.peek(&message, &offset)
            if not again and cursor.offset > self.frontier:
                # Segments were passed over.
                self.frontier = cursor.offset
            if found == WAIT:
                break
            if found == LATER:
                self.touch()
                break
            if again and (found == AT_END or offset != target):
                # Retention took it meanwhile.
                self.note_settled(self.returned.pop(0))
                continue
            if found == AT_END:
                self.wait()
                break
            records += 1
            # A filter walks through the headers, and the offset is written into a copy of them.
            size += message.body_length + message.properties_length
            cursor.step()
            if again:
                self.returned.pop(0)
                readers.redelivered += 1
                readers.redelivered_bytes += message.body_length
            else:
                self.frontier = offset + 1
                if self.filter is not None and not self.filter.takes(&message):
                    continue
                self.note_delivered(offset)
            place.segment = <uint32_t> (offset >> 32)
            place.position = <uint32_t> offset
            place.length = 0
            place.body_length = message.body_length
            place.redelivered = again
            readers.delivered += 1
            readers.bytes_out += message.body_length
            if consumer.no_ack:
                readers.delivered_no_ack += 1
                readers.no_ack_bytes += message.body_length
            put_offset(readers.stamped, &message, offset)
            consumer.channel.deliver(consumer, &message, &place)
        return self.note_turn(records)

    cdef int note_turn(self, uint32_t records) except -1:
        """At the end of its time in the turn: how many messages it read for its consumer."""
        if (records and self.consumer is not None
                and self.frontier < self.readers.store.safe_offset):
            self.readers.turn.reading.delivered(records, self.consumer.prefetch_count)
        return 0

    cdef int wait(self) except -1:
        """There is nothing more to read: `Readers.wake` is called when there is. A sync of appended
        messages is requested."""
        if not self.is_waiting:
            self.is_waiting = True
            self.readers.waiting.append(self)
        if self.readers.store.next_offset > self.readers.store.safe_offset:
            self.readers.store.ask()
        return 0

    # -- settling ----------------------------------------------------------------------------------

    cdef int publish(self, Message* message, bint confirm) except -1:
        raise NotImplementedError

    cdef int settle(self, Place* place, bint acked) except -1:
        if acked:
            self.readers.acked += 1
            self.readers.acked_bytes += place.body_length
        else:
            self.readers.rejected += 1
            self.readers.rejected_bytes += place.body_length
        return self.note_settled(<uint64_t> place.segment << 32 | place.position)

    cdef int requeue(self, Place* place) except -1:
        if self.consumer is not None and self.consumer.active:
            bisect.insort(self.returned, <uint64_t> place.segment << 32 | place.position)
            self.touch()
        return 0

    cdef int note_delivered(self, uint64_t offset) except -1:
        """The consumer has a message to ack: only what lies before all of these is done."""
        cdef uint64_t* grown
        cdef uint32_t capacity
        if self.tracked is None:
            return 0
        if self.unacked_first + self.unacked_count == self.unacked_capacity:
            if self.unacked_first > self.unacked_capacity // 2:
                memmove(self.unacked, self.unacked + self.unacked_first,
                        self.unacked_count * sizeof(uint64_t))
                self.unacked_first = 0
            else:
                capacity = self.unacked_capacity * 2 if self.unacked_capacity else 16
                grown = <uint64_t*> realloc(self.unacked, capacity * sizeof(uint64_t))
                if grown == NULL:
                    raise MemoryError("no memory for unacknowledged offsets")
                self.unacked = grown
                self.unacked_capacity = capacity
        self.unacked[self.unacked_first + self.unacked_count] = offset
        self.unacked_count += 1
        return 0

    cdef int note_settled(self, uint64_t offset) except -1:
        """The consumer is done with a message; the server keeps its place, which is the last
        message before the first one that it is not done with."""
        cdef uint64_t* first = self.unacked + self.unacked_first
        cdef uint32_t low = 0
        cdef uint32_t high = self.unacked_count
        cdef uint32_t middle
        cdef uint64_t done
        if self.tracked is None:
            return 0
        while low < high:
            middle = (low + high) // 2
            if first[middle] < offset:
                low = middle + 1
            else:
                high = middle
        if low == self.unacked_count or first[low] != offset:
            return 0
        if low == 0:
            self.unacked_first += 1
        else:
            memmove(first + low, first + low + 1,
                    (self.unacked_count - low - 1) * sizeof(uint64_t))
        self.unacked_count -= 1
        done = self.unacked[self.unacked_first] if self.unacked_count else self.frontier
        if done == 0 or self.stream.deleted:
            return 0
        if not self.tracked.known or self.tracked.offset != done - 1:
            self.readers.store.keep_offset(self.tracked, done - 1)
        return 0


cdef class StreamBrowser:
    """Reads up to `count` messages for a person, until their bodies have `bytes_max` bytes, and
    calls `done` with rows (offset, ms since 1970, exchange, routing key, properties, body, which
    may be a LargeBody)."""

    def __init__(self, StreamStore store, start, uint32_t count, uint64_t bytes_max, later, done):
        self.cursor = StreamCursor(store, self.go_on)
        go_to_start(self.cursor, start)
        self.stamped = Buffer()
        self.left = count
        self.bytes_left = bytes_max
        self.later = later
        self.done = done
        self.rows = []

    def go_on(self) -> None:
        """Reads on; called again when the reader thread has answered."""
        cdef Message message
        cdef uint64_t offset
        cdef uint32_t records = 0
        cdef uint64_t size = 0
        cdef int found
        self.trouble = self.cursor.trouble
        self.cursor.trouble = None
        while self.left and self.bytes_left and not self.cursor.store.deleted:
            if records >= TURN_RECORDS or size >= TURN_RECORDS * RECORD_BYTES:
                self.later(0.0, self.go_on)
                return
            found = self.cursor.peek(&message, &offset)
            if found == WAIT:
                return
            if found == LATER:
                self.later(0.0, self.go_on)
                return
            if found == AT_END:
                break
            self.cursor.step()
            put_offset(self.stamped, &message, offset)
            self.rows.append((
                offset, message.timestamp, message.exchange[:message.exchange_length],
                message.routing_key[:message.routing_key_length],
                message.properties[:message.properties_length], body_of(&message)))
            records += 1
            size += message.body_length + message.properties_length
            self.left -= 1
            self.bytes_left -= min(self.bytes_left, <uint64_t> message.body_length)
        self.cursor.wake = not_needed  # they would refer to each other for ever
        self.done(self.rows)

# cython: language_level=3
"""A channel: receives the content of publishes and passes it to the queues of its route.

It inherits from `replying`, `delivering`, `confirming` and `collecting`, one layer each. Methods
off the hot path are in `broker.wire.commands`.

A publish whose content lies in one received chunk is routed as a view into that chunk. If the bytes
end before the content does, `keep` copies them and the rest is collected, a large body in a file. A
message is passed to a queue only when its last byte is received.
"""

from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp

from broker.fields.tables cimport check_table
from broker.kernel cimport clock
from broker.kernel.buffer cimport Buffer, load16, load32, load64
from broker.kernel.contracts cimport Exchange, HELD, NEEDS_SYNC, Queue, REJECTED, Topology
from broker.kernel.large_body cimport body_of, LARGE_BODY, set_body
from broker.kernel.ledger cimport Ledger
from broker.kernel.message cimport (
    BODY_IS_REFERENCE, EXPIRES, Message, PERSISTENT, set_parts,
)
from broker.kernel.recording import NOT_RECORDING
from broker.schema.errors import FrameError, NotImplementedYet, PreconditionFailed, UnexpectedFrame
from broker.store.bodies.store cimport BodyStore
from broker.store.commit.persister cimport Persister
from broker.wire.collecting cimport (
    CollectingChannel, EXPECT_BODY, EXPECT_HEADER, EXPECT_METHOD,
)
from broker.wire.delivering cimport TRACED_BODY
from broker.wire.sizes cimport count_size

cdef extern from "<string.h>" nogil:
    void* memmem(const void* data, size_t length, const void* needle, size_t needle_length)


cdef enum:
    MEMO_MAX = 600               # a method frame longer than this is not remembered
    FLOWS_MAX = 1024             # routes of a channel whose messages are counted
    # Property flags that make a publish a case for `special`: headers, reply-to, expiration,
    # user-id.
    SPECIAL_FLAGS = (1 << 13) | (1 << 9) | (1 << 8) | (1 << 4)


cdef int walk_properties(const uint8_t* p, uint32_t length, uint8_t* delivery_mode) except -1:
    """Checks that the property list fills its bytes and its headers can be decoded, and finds the
    delivery mode. Raises FrameError (501)."""
    cdef uint32_t at = 2
    cdef uint32_t size
    cdef int bit
    cdef uint16_t flags
    delivery_mode[0] = 1
    if length < 2:
        raise FrameError("cannot decode: a content header without property flags")
    flags = load16(p)
    if flags == 0 and length == 2:
        return 0
    if flags & 3:
        raise FrameError("cannot decode: unknown property flags")
    for bit in range(15, 1, -1):
        if not flags >> bit & 1:
            continue
        if bit == 13:
            if length - at < 4:
                raise FrameError("cannot decode: the properties end too early")
            size = load32(p + at)
            if size > length - at - 4:
                raise FrameError("cannot decode: the properties end too early")
            check_table(p + at + 4, size)
            size += 4
        elif bit == 12 or bit == 11:
            size = 1
        elif bit == 6:
            size = 8
        else:
            size = 1 + <uint32_t> p[at] if at < length else 1
        if size > length - at:
            raise FrameError("cannot decode: the properties end too early")
        if bit == 12:
            delivery_mode[0] = p[at]
        at += size
    if at != length:
        raise FrameError(f"cannot decode: {length - at} bytes follow the properties")
    return 0


cdef bint is_special(Message* message) noexcept:
    """Whether the properties need more than the memo can decide: reply-to, expiration, user-id, or
    CC and BCC among the headers."""
    cdef uint16_t flags = load16(message.properties)
    cdef const uint8_t* end = message.properties + message.properties_length
    if not flags & SPECIAL_FLAGS:
        return False
    if flags & (SPECIAL_FLAGS & ~(1 << 13)):
        return True
    return (memmem(message.properties, end - message.properties, b"\x02CC", 3) != NULL
            or memmem(message.properties, end - message.properties, b"\x03BCC", 4) != NULL)


cdef class WireChannel(CollectingChannel):
    """One channel. `connection` is the Connection that `output` is the writing half of."""

    def __init__(self, connection, uint16_t number, Persister persister, Topology topology, *,
                 uint64_t max_message_size=128 << 20, uint64_t max_unacked=1000000,
                 BodyStore bodies=None, uint64_t body_in_memory=1 << 20):
        self.output = connection
        self.connection = connection
        self.number = number
        self.persister = persister
        self.topology = topology
        self.recorder = NOT_RECORDING
        self.bodies = bodies
        self.share_from = bodies.embed_below if bodies is not None else 0xFFFFFFFF
        self.expect = EXPECT_METHOD
        self.kept = Buffer()
        self.memo = Buffer()
        self.flows = {}
        self.opened_at = clock.now_ms
        self.ledger = Ledger()
        self.consumers = {}
        self.lingering = None
        self.flowing = True
        self.max_message_size = max_message_size
        self.max_unacked = max_unacked
        self.body_in_memory = body_in_memory

    # -- what others see ---------------------------------------------------------------------------

    @property
    def messages_uncommitted(self):
        return len(self.transaction.publishes) if self.transaction is not None else 0

    @property
    def message_bytes_uncommitted(self):
        return self.transaction.size if self.transaction is not None else 0

    @property
    def acks_uncommitted(self):
        return len(self.transaction.settles) if self.transaction is not None else 0

    def counters(self) -> dict:
        """Cumulative counts under RabbitMQ's names."""
        return {
            "publish": self.published,
            "confirm": self.confirmed,
            "return_unroutable": self.returned,
            "drop_unroutable": self.dropped,
            "deliver": self.delivered,
            "deliver_no_ack": self.delivered_no_ack,
            "get": self.got,
            "get_no_ack": self.got_no_ack,
            "get_empty": self.got_empty,
            "ack": self.acked,
            "redeliver": self.redelivered,
            "reject": self.rejected,
        }

    def published_to(self) -> dict:
        """How many messages were published by which route: `(exchange, queues)`. Of a channel that
        publishes to very many, the routes of lately."""
        self.end_memo(self.published)
        return self.flows

    cdef int end_memo(self, uint64_t published) except -1:
        """Counts what went the way that the memo remembers."""
        if self.memo_route is not None and published != self.memo_since:
            self.note_flow(self.memo_route, published - self.memo_since)
        self.memo_since = published
        return 0

    cdef int note_flow(self, tuple route, uint64_t count) except -1:
        found = self.flows.get(route)
        if found is None:
            if len(self.flows) >= FLOWS_MAX:
                # A publisher to ever new queues must not hold them all.
                for old in list(self.flows)[:FLOWS_MAX // 2]:
                    del self.flows[old]
            self.flows[route] = count
        else:
            self.flows[route] = found + count
        return 0

    # -- content in --------------------------------------------------------------------------------

    cdef int on_publish(self, const uint8_t* payload, uint32_t length) except -1:
        """basic.publish: two octets reserved, exchange, routing key, bits (mandatory,
        immediate)."""
        cdef uint32_t at = 2
        if length < 5:
            raise FrameError("cannot decode: basic.publish ends too early")
        at += 1 + <uint32_t> payload[at]
        if at >= length:
            raise FrameError("cannot decode: basic.publish ends too early")
        at += 1 + <uint32_t> payload[at]
        if at + 1 != length:
            raise FrameError("cannot decode: the arguments of basic.publish do not fill its frame")
        if payload[at] & 2:
            raise NotImplementedYet("immediate=true")
        self.method = payload + 2
        self.method_length = length - 2
        self.expect = EXPECT_HEADER
        self.is_kept = False
        self.body_kept = False
        return 0

    cdef int on_header(self, const uint8_t* payload, uint32_t length) except -1:
        if self.expect == EXPECT_METHOD:
            raise UnexpectedFrame("expected method frame, got non method frame instead")
        if self.expect == EXPECT_BODY:
            raise UnexpectedFrame("expected content body, got non content body frame instead")
        if length < 14:
            raise FrameError("cannot decode: a content header ends too early")
        if load16(payload) != 60:
            raise UnexpectedFrame(
                "expected content header for class 60, "
                f"got one for class {load16(payload)} instead")
        self.body_length = load64(payload + 4)
        if self.body_length > self.max_message_size:
            self.expect = EXPECT_METHOD
            self.kept.release()
            raise PreconditionFailed(
                f"message size {self.body_length} is larger than configured max size "
                f"{self.max_message_size}")
        self.body_received = 0
        self.properties = payload + 12
        self.properties_length = length - 12
        if self.is_kept:
            self.kept.add(self.properties, self.properties_length)
        if self.body_length == 0:
            return self.content(payload)
        self.expect = EXPECT_BODY
        return 0

    cdef int on_body(self, const uint8_t* payload, uint32_t length) except -1:
        if self.expect == EXPECT_METHOD:
            raise UnexpectedFrame("expected method frame, got non method frame instead")
        if self.expect == EXPECT_HEADER:
            raise UnexpectedFrame(
                "expected content header for class 60, got non content header frame instead")
        if length > self.body_length - self.body_received:
            raise FrameError("content body frame exceeds remaining content size")
        if length == self.body_length and not self.body_kept:
            return self.content(payload)
        if not self.body_kept:
            self.keep()
            self.body_kept = True
            if self.body_length > self.body_in_memory:
                self.collected = self.persister.contents.begin(self.body_length, self.on_collected)
        self.body_received += length
        if self.collected is not None:
            return self.collect(payload, length)
        self.kept.add(payload, length)
        if self.body_received == self.body_length:
            return self.content(NULL)
        return 0

    cdef int keep(self) except -1:
        """The chunk ends, or the body comes in parts: copies what the pointers show."""
        if self.expect == EXPECT_METHOD or self.is_kept:
            return 0
        self.is_kept = True
        self.kept.length = 0
        self.kept.add(self.method, self.method_length)
        if self.expect == EXPECT_BODY:
            self.kept.add(self.properties, self.properties_length)
        return 0

    cdef int content(self, const uint8_t* body) except -1:
        """A message is whole: routes it, or puts it aside for the transaction's commit."""
        cdef Message message
        cdef const uint8_t* p
        cdef uint8_t delivery_mode
        cdef uint8_t bits
        self.expect = EXPECT_METHOD
        if self.is_kept:
            self.method = self.kept.data
            self.properties = self.kept.data + self.method_length
            if self.body_kept and self.collected is None:
                body = self.kept.data + self.method_length + self.properties_length
        walk_properties(self.properties, self.properties_length, &delivery_mode)
        p = self.method
        message.exchange_length = p[0]
        message.exchange = p + 1
        p += 1 + <uint32_t> p[0]
        message.routing_key_length = p[0]
        message.routing_key = p + 1
        p += 1 + <uint32_t> p[0]
        bits = p[0]
        message.properties = self.properties
        message.properties_length = self.properties_length
        message.body = body
        message.large = NULL
        if self.collected is not None and self.body_length >= LARGE_BODY:
            message.large = <void*> self.collected.body
        message.body_length = <uint32_t> self.body_length
        message.flags = PERSISTENT if delivery_mode == 2 else 0
        if load16(self.properties) & 1 << 8:
            message.flags |= EXPIRES
        message.timestamp = clock.now_ms
        self.published += 1
        self.published_bytes += message.body_length
        count_size(message.body_length)
        if self.transactional:
            # It is routed at the commit. What is put aside takes a microsecond or two, and a chunk
            # holds thousands.
            if not self.published & 63:
                self.connection.count_work(0)
            self.memo_since += 1
            self.astray += 1
            self.astray_bytes += message.body_length
            self.check_target(
                message.exchange[:message.exchange_length],
                message.routing_key[:message.routing_key_length],
                message.properties[:message.properties_length])
            self.transaction.publish((
                message.exchange[:message.exchange_length],
                message.routing_key[:message.routing_key_length],
                message.properties[:message.properties_length],
                body_of(&message), message.flags, bits & 1),
                self.topology.version)
        else:
            self.route(&message, bits & 1)
        if self.is_kept:
            self.kept.drop(self.kept.length)
        return 0

    def check_target(self, bytes exchange, bytes routing_key, bytes properties):
        """Raises what publishing there would raise."""
        target, _ = self.connection.resolve(self, exchange, routing_key)
        if load16(<const uint8_t*> <char*> properties) & SPECIAL_FLAGS:
            self.connection.check_properties(self, target, properties)

    def publish_committed(self, bytes exchange, bytes routing_key, bytes properties, body,
                          int flags, bint mandatory):
        """Routes a message that a transaction had put aside. Returns whether a queue refused it."""
        cdef Message message
        set_parts(&message, exchange, routing_key, properties, b"")
        set_body(&message, body)
        message.flags = <uint8_t> flags
        message.timestamp = clock.now_ms
        method = (bytes([len(exchange)]) + exchange + bytes([len(routing_key)]) + routing_key
                  + (b"\x01" if mandatory else b"\x00"))
        self.method = <const uint8_t*> <char*> method
        self.method_length = <uint32_t> len(method)
        self.memo_since -= 1
        self.astray -= 1
        self.astray_bytes -= message.body_length
        return bool(self.route(&message, mandatory) & REJECTED)

    cdef int route(self, Message* message, bint mandatory) except -1:
        """Gives the message to every queue of its route and notes what its confirm waits for.
        Returns what the queues answered, together."""
        cdef uint64_t version = self.topology.version
        cdef tuple targets
        cdef Exchange exchange
        cdef int result = 0
        cdef int held = 0
        cdef int answer
        cdef bint is_looked_at
        cdef Py_ssize_t i
        if (self.memo_version == version and self.memo.length == self.method_length
                and memcmp(self.memo.data, self.method, self.method_length) == 0):
            exchange = self.memo_exchange
            targets = self.memo_targets
        else:
            # A publish that raises from here on went no way.
            self.end_memo(self.published - 1)
            self.memo_since += 1
            self.astray += 1
            self.astray_bytes += message.body_length
            found = self.connection.resolve(
                self, message.exchange[:message.exchange_length],
                message.routing_key[:message.routing_key_length])
            self.astray -= 1
            self.astray_bytes -= message.body_length
            exchange, targets = found
            if targets is not None and self.method_length <= MEMO_MAX:
                self.memo_since -= 1
                self.memo_route = found
                self.memo.length = 0
                self.memo.add(self.method, self.method_length)
                self.memo_version = version
                self.memo_exchange = exchange
                self.memo_targets = targets
        exchange.publish_in += 1
        exchange.bytes_in += message.body_length
        # Not the key alone decides: the exchange may have remembered the message.
        is_looked_at = targets is None
        if is_looked_at or is_special(message):
            self.astray += 1
            self.astray_bytes += message.body_length
            targets = self.connection.special(
                self, exchange, targets, message.routing_key[:message.routing_key_length],
                message.properties[:message.properties_length], mandatory)
            self.astray -= 1
            self.astray_bytes -= message.body_length
            if self.replaced is not None:
                message.properties = <const uint8_t*> <char*> self.replaced
                message.properties_length = <uint32_t> len(self.replaced)
            if not is_looked_at:
                self.memo_since += 1
            self.note_flow((exchange, targets), 1)
        message.origin.channel = self.serial
        message.origin.tag = self.sequence + 1
        if (message.body_length >= self.share_from and PyTuple_GET_SIZE(targets) > 1
                or message.large != NULL and self.bodies is not None and targets):
            result = self.publish_shared(message, targets, &held)
        else:
            for i in range(PyTuple_GET_SIZE(targets)):
                answer = (<Queue> PyTuple_GET_ITEM(targets, i)).publish(message, self.confirm_mode)
                result |= answer
                held += answer == HELD
        if PyTuple_GET_SIZE(targets) == 0:
            if mandatory:
                self.returned += 1
                self.returned_bytes += message.body_length
                exchange.returned += 1
                exchange.bytes_returned += message.body_length
                self.write_return(message)
            else:
                self.dropped += 1
                self.dropped_bytes += message.body_length
                exchange.dropped += 1
                exchange.bytes_dropped += message.body_length
        else:
            exchange.publish_out += 1
            exchange.bytes_out += message.body_length
            if result & REJECTED:
                self.not_taken += 1
                self.not_taken_bytes += message.body_length
                exchange.refused += 1
                exchange.bytes_refused += message.body_length
                for target in targets:
                    target.note_refused(self.connection)
                if is_looked_at:
                    self.connection.refused(
                        exchange, message.properties[:message.properties_length])
        if self.recorder.on:
            result |= self.record(message, exchange, targets, result)
        if self.traced:
            self.trace_publish(message, targets)
        if self.confirm_mode:
            self.sequence += 1
            if held or self.held_confirms is not None:
                self.hold_confirm(held, result & NEEDS_SYNC, result & REJECTED)
            elif result & REJECTED:
                self.refuse()
            elif result & NEEDS_SYNC or self.wanted > self.settled_sequence:
                self.wanted = self.sequence
                if not self.confirming:
                    self.persister.want_confirm(self)
            else:
                self.settled_sequence = self.sequence
                self.output.touch_confirm(self)
        return result

    cdef int record(self, Message* message, Exchange exchange, tuple targets,
                    int answer) except -1:
        """A policy of the vhost has its messages kept in a history."""
        if self.recording is None:
            self.recording = self.recorder.begin(self.connection.user, self.connection.name)
        return self.recording.record(message, exchange, targets, answer)

    cdef int trace_publish(self, Message* message, tuple targets) except -1:
        # A body that is collected in a file is not there.
        cdef uint32_t length = min(message.body_length, <uint32_t> TRACED_BODY)
        self.connection.trace_publish(
            self, message.exchange[:message.exchange_length],
            message.routing_key[:message.routing_key_length],
            message.properties[:message.properties_length],
            message.body[:length] if message.body != NULL else b"", targets)
        return 0

    cdef int publish_shared(self, Message* message, tuple targets, int* held) except -1:
        """A body for several queues is stored once; each gets a reference to it. One that is too
        large to be copied is stored there for a single queue, too."""
        cdef int result = 0
        cdef int answer
        cdef Py_ssize_t i
        self.bodies.share(message)
        try:
            for i in range(PyTuple_GET_SIZE(targets)):
                answer = (<Queue> PyTuple_GET_ITEM(targets, i)).receive(message, self.confirm_mode)
                result |= answer
                held[0] += answer == HELD
        finally:
            self.bodies.release(message.reference)
            message.flags &= ~BODY_IS_REFERENCE
        return result

    def forget_content(self):
        """The channel ends: an unfinished message is dropped, and confirms are not sent any
        more."""
        self.persister.origins.leave(self.serial)
        if self.ack_timeouts is not None:
            self.ack_timeouts.stop()
            self.ack_timeouts = None
        if self.gets is not None:
            self.gets.end()
            self.gets = None
        if self.room is not None:
            self.room.end()
        self.qos_undo = None
        self.expect = EXPECT_METHOD
        self.kept.release()
        self.drop_collected()
        self.memo.release()
        self.memo_targets = None
        self.memo_exchange = None
        self.memo_route = None
        self.flows = {}
        self.memo_version = 0

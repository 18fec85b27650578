# cython: language_level=3
"""A channel's hot half: content in, deliveries out, acks, confirms. What is asked once in a while
is in `broker.wire.commands`.

A publish whose content lies in one received chunk is routed as a view into that chunk. If the bytes
end before the content does, `keep` copies what is there and the rest is collected, a large body in
a file (`collect`). Nothing reaches a queue before its last byte.
"""

import functools
import os

from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from broker.contracts cimport (
    Channel, Consumer, Exchange, HELD, NEEDS_SYNC, Queue, REJECTED, Topology,
)
from broker.kernel.buffer cimport Buffer, load16, load32, load64, store16, store32, store64
from broker.kernel.ledger cimport Ledger, Unacked
from broker.kernel.message cimport (
    BODY_IS_REFERENCE, EXPIRES, Message, PERSISTENT, Place, set_parts,
)
from broker.store.bodies cimport BodyStore
from broker.store.recorder cimport (
    PLANTED_CONFIRM_ONE_MORE, planted, record_mark, recording,
)
from broker.store.persister cimport Persister
from broker.kernel cimport clock
from broker.store.content_file cimport ContentFile
from broker.wire.held_confirms cimport HeldConfirms
from broker.wire.held_replies cimport HeldReplies, HeldReply
from broker.wire.output cimport OUT_FULL, Output
from broker.wire.ack_timeouts import AckTimeouts
from broker.errors import FrameError, NotImplementedYet, PreconditionFailed, UnexpectedFrame

cdef extern from "<string.h>" nogil:
    void* memmem(const void* data, size_t length, const void* needle, size_t needle_length)


cdef enum:
    FRAME_END = 0xCE
    MEMO_MAX = 600               # a method frame longer than this is not remembered
    # Property flags that make a publish a case for `special`: headers, reply-to, expiration,
    # user-id.
    SPECIAL_FLAGS = (1 << 13) | (1 << 9) | (1 << 8) | (1 << 4)


cdef int walk_properties(const uint8_t* p, uint32_t length, uint8_t* delivery_mode) except -1:
    """Checks that the property list fills its bytes and finds the delivery mode. Raises FrameError
    (501)."""
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
    """Whether the properties ask for more than the memo knows: reply-to, expiration, user-id, or CC
    and BCC among the headers."""
    cdef uint16_t flags = load16(message.properties)
    cdef const uint8_t* end = message.properties + message.properties_length
    if not flags & SPECIAL_FLAGS:
        return False
    if flags & (SPECIAL_FLAGS & ~(1 << 13)):
        return True
    return (memmem(message.properties, end - message.properties, b"\x02CC", 3) != NULL
            or memmem(message.properties, end - message.properties, b"\x03BCC", 4) != NULL)


cdef class WireChannel(Channel):
    """One channel. `connection` is the Connection that `output` is the writing half of."""

    def __init__(self, connection, uint16_t number, Persister persister, Topology topology, *,
                 uint64_t max_message_size=128 << 20, uint64_t max_unacked=1000000,
                 BodyStore bodies=None, uint64_t body_in_memory=1 << 20):
        self.output = connection
        self.connection = connection
        self.number = number
        self.persister = persister
        self.topology = topology
        self.bodies = bodies
        self.share_from = bodies.embed_below if bodies is not None else 0xFFFFFFFF
        self.expect = EXPECT_METHOD
        self.kept = Buffer()
        self.memo = Buffer()
        self.ledger = Ledger()
        self.consumers = {}
        self.lingering = None
        self.flowing = True
        self.max_message_size = max_message_size
        self.max_unacked = max_unacked
        self.body_in_memory = body_in_memory

    # -- what others see ---------------------------------------------------------------------------

    @property
    def confirm(self):
        return self.confirm_mode

    @property
    def messages_unacknowledged(self):
        return self.ledger.count

    @property
    def messages_unconfirmed(self):
        if self.held_confirms is not None:
            return self.held_confirms.open
        return self.sequence - self.told_sequence if self.confirm_mode else 0

    @property
    def oldest_unconfirmed(self):
        """The tag of the oldest unconfirmed message; 0 if there is none, or it is not known."""
        if self.held_confirms is not None:
            return self.held_confirms.oldest()
        return self.told_sequence + 1 if self.messages_unconfirmed else 0

    @property
    def messages_uncommitted(self):
        return len(self.transaction_publishes) if self.transaction_publishes else 0

    @property
    def acks_uncommitted(self):
        return len(self.transaction_settles) if self.transaction_settles else 0

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
        }

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

    cdef int collect(self, const uint8_t* payload, uint32_t length) except -1:
        """A part of a large body. Nothing more is read of the connection while the disk is behind,
        and when the body is whole until it is read back."""
        self.collected.add(payload, length)
        if self.body_received == self.body_length:
            self.connection.await_collected(self)
            return self.persister.contents.ask(self.collected)
        if self.collected.is_behind:
            self.connection.await_collected(self)
        return 0

    def on_collected(self):
        """The thread that writes collected bodies has done something."""
        content = self.collected
        if content is not None and (content.error or content.whole):
            self.connection.take_collected(self)
        elif content is None or (
                self.body_received < self.body_length and not content.is_behind):
            self.connection.collected(self)

    def take_collected(self):
        """Routes the message if its body is whole. Raises PreconditionFailed if the disk did not
        take it."""
        content = self.collected
        if content.error:
            self.drop_collected()
            self.expect = EXPECT_METHOD
            raise PreconditionFailed(
                f"cannot take a message of {content.length} bytes: {os.strerror(content.error)}")
        if content.whole:
            try:
                self.content((<ContentFile> content).data)
            finally:
                self.drop_collected()

    cdef int drop_collected(self) except -1:
        cdef ContentFile content = self.collected
        if content is not None:
            self.collected = None
            content.end()
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
        message.body_length = <uint32_t> self.body_length
        message.flags = PERSISTENT if delivery_mode == 2 else 0
        if load16(self.properties) & 1 << 8:
            message.flags |= EXPIRES
        message.timestamp = clock.now_ms
        self.published += 1
        if self.transactional:
            self.check_target(
                message.exchange[:message.exchange_length],
                message.routing_key[:message.routing_key_length],
                message.properties[:message.properties_length])
            self.transaction_publishes.append((
                message.exchange[:message.exchange_length],
                message.routing_key[:message.routing_key_length],
                message.properties[:message.properties_length],
                message.body[:message.body_length], message.flags, bits & 1))
        else:
            self.route(&message, bits & 1)
        if self.is_kept:
            self.kept.drop(self.kept.length)
        return 0

    def check_target(self, bytes exchange, bytes routing_key, bytes properties):
        """Raises what publishing there would raise."""
        self.connection.resolve(self, exchange, routing_key)
        if load16(<const uint8_t*> <char*> properties) & SPECIAL_FLAGS:
            self.connection.check_properties(self, properties)

    def publish_committed(self, bytes exchange, bytes routing_key, bytes properties, bytes body,
                          int flags, bint mandatory):
        """Routes a message that a transaction had put aside."""
        cdef Message message
        set_parts(&message, exchange, routing_key, properties, body)
        message.flags = <uint8_t> flags
        message.timestamp = clock.now_ms
        method = (bytes([len(exchange)]) + exchange + bytes([len(routing_key)]) + routing_key
                  + (b"\x01" if mandatory else b"\x00"))
        self.method = <const uint8_t*> <char*> method
        self.method_length = <uint32_t> len(method)
        self.route(&message, mandatory)

    cdef int route(self, Message* message, bint mandatory) except -1:
        """Gives the message to every queue of its route and notes what its confirm waits for."""
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
            exchange, targets = self.connection.resolve(
                self, message.exchange[:message.exchange_length],
                message.routing_key[:message.routing_key_length])
            if targets is not None and self.method_length <= MEMO_MAX:
                self.memo.length = 0
                self.memo.add(self.method, self.method_length)
                self.memo_version = version
                self.memo_exchange = exchange
                self.memo_targets = targets
        exchange.publish_in += 1
        # Not the key alone decides: the exchange may have remembered the message.
        is_looked_at = targets is None
        if is_looked_at or is_special(message):
            targets = self.connection.special(
                self, exchange, targets, message.routing_key[:message.routing_key_length],
                message.properties[:message.properties_length], mandatory)
            if self.replaced is not None:
                message.properties = <const uint8_t*> <char*> self.replaced
                message.properties_length = <uint32_t> len(self.replaced)
        message.origin.channel = self.serial
        message.origin.tag = self.sequence + 1
        if message.body_length >= self.share_from and PyTuple_GET_SIZE(targets) > 1:
            result = self.publish_shared(message, targets, &held)
        else:
            for i in range(PyTuple_GET_SIZE(targets)):
                answer = (<Queue> PyTuple_GET_ITEM(targets, i)).publish(message, self.confirm_mode)
                result |= answer
                held += answer == HELD
        if PyTuple_GET_SIZE(targets) == 0:
            if mandatory:
                self.returned += 1
                self.write_return(message)
            else:
                self.dropped += 1
        else:
            exchange.publish_out += 1
            if result & REJECTED and is_looked_at:
                self.connection.refused(exchange, message.properties[:message.properties_length])
        if self.confirm_mode:
            self.sequence += 1
            if held or self.held_confirms is not None:
                self.hold_confirm(held, result & NEEDS_SYNC, result & REJECTED)
            elif result & REJECTED:
                # Nacked now and out of the way; acks of earlier publishes may still have to come.
                self.write_confirm()
                self.connection.send_nack(self, self.sequence)
                if self.told_sequence == self.sequence - 1:
                    self.told_sequence = self.settled_sequence = self.sequence
            elif result & NEEDS_SYNC or self.wanted > self.settled_sequence:
                self.wanted = self.sequence
                if not self.confirming:
                    self.persister.want_confirm(self)
            else:
                self.settled_sequence = self.sequence
                self.output.touch_confirm(self)
        return 0

    cdef int publish_shared(self, Message* message, tuple targets, int* held) except -1:
        """A large body for several queues is stored once; each gets a reference to it."""
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

    # -- confirms ----------------------------------------------------------------------------------

    def select_confirms(self):
        if not self.confirm_mode:
            self.confirm_mode = True
            self.serial = self.persister.origins.enter(self)

    cdef int hold_confirm(self, int held, bint waits, bint rejected) except -1:
        """The publish at hand, or one before it, is confirmed by its consumers: from here on
        confirms do not come in order."""
        if self.held_confirms is None:
            self.write_confirm()
            self.held_confirms = HeldConfirms(self.told_sequence)
            self.held_confirms.wait(self.told_sequence + 1, self.sequence - 1)
        self.held_confirms.publish(self.sequence, held, waits, rejected)
        if self.early is not None:
            early, self.early = self.early, None
            for acked in early:
                self.held_confirms.resolve(self.sequence, acked)
        if waits:
            self.wanted = self.sequence
            self.persister.want_confirm(self)
        return self.output.touch_confirm(self)

    cdef int resolve(self, uint64_t tag, bint acked) except -1:
        if tag > self.sequence:
            # A queue is done with it while it is still being published to others.
            if self.early is None:
                self.early = []
            self.early.append(acked)
        elif self.held_confirms is not None:
            self.held_confirms.resolve(tag, acked)
            self.output.touch_confirm(self)
        return 0

    cdef int more_parts(self, uint64_t tag, int parts) except -1:
        if self.held_confirms is not None:
            self.held_confirms.more(tag, parts)
        return 0

    cdef int write_held(self) except -1:
        self.confirmed += self.held_confirms.write(self.output.out, self.number)
        if self.held_confirms.open == 0:
            # All is told: confirms come in order again.
            self.held_confirms = None
            self.told_sequence = self.settled_sequence = self.sequence
        return 0

    cdef int confirm(self) except -1:
        if self.held_confirms is not None:
            self.held_confirms.synced(self.flying)
            return self.output.touch_confirm(self)
        if self.flying > self.settled_sequence:
            self.settled_sequence = self.flying
            self.output.touch_confirm(self)
        return 0

    cdef int write_confirm(self) except -1:
        """basic.ack of everything confirmed and not yet told."""
        cdef uint8_t* p
        cdef uint64_t count = self.settled_sequence - self.told_sequence
        cdef uint64_t told = self.settled_sequence + (planted == PLANTED_CONFIRM_ONE_MORE)
        if self.closing:
            return 0
        if self.held_confirms is not None:
            return self.write_held()
        if count == 0:
            return 0
        p = self.output.out.room(21)
        p[0] = 1
        store16(p + 1, self.number)
        store32(p + 3, 13)
        store16(p + 7, 60)
        store16(p + 9, 80)
        store64(p + 11, told)
        p[19] = 1 if count > 1 else 0
        p[20] = FRAME_END
        self.output.out.length += 21
        self.confirmed += count
        self.told_sequence = self.settled_sequence
        if recording:
            record_mark(b"confirm", told)
        return 0

    # -- deliveries --------------------------------------------------------------------------------

    cdef bint can_take(self, Consumer consumer) noexcept:
        cdef Output output = self.output
        if output.congested or output.out.length > OUT_FULL or not self.flowing:
            return False
        if consumer.no_ack:
            return True
        if consumer.prefetch_count and consumer.unacked >= consumer.prefetch_count:
            return False
        if self.global_prefetch_count and self.consumer_unacked >= self.global_prefetch_count:
            return False
        return self.ledger.count < self.max_unacked

    cdef int deliver(self, Consumer consumer, Message* message, Place* place) except -1:
        """basic.deliver with its content."""
        cdef Buffer out = self.output.out
        cdef Unacked* entry
        cdef uint64_t tag
        cdef uint8_t* p
        cdef uint8_t* start
        cdef uint32_t tag_length = <uint32_t> len(consumer.wire_tag)
        cdef uint32_t payload = (4 + tag_length + 9 + 1 + message.exchange_length
                                 + 1 + message.routing_key_length)
        if consumer.no_ack:
            tag = self.ledger.next
            self.ledger.skip_tag()
            self.delivered_no_ack += 1
            if consumer.queue.durable:
                self.acks_unwritten = True
        else:
            tag = self.ledger.next
            entry = self.ledger.add()
            entry.consumer = <void*> consumer
            entry.segment = place.segment
            entry.position = place.position
            entry.length = place.length
            entry.word = place.body_length << 1 | place.redelivered
            consumer.unacked += 1
            self.consumer_unacked += 1
            self.delivered += 1
        consumer.delivered += 1
        if place.redelivered:
            self.redelivered += 1
        start = out.room(payload + 8)
        start[0] = 1
        store16(start + 1, self.number)
        store32(start + 3, payload)
        store16(start + 7, 60)
        store16(start + 9, 60)
        p = start + 11
        memcpy(p, <char*> consumer.wire_tag, tag_length)
        p += tag_length
        store64(p, tag)
        p[8] = <uint8_t> place.redelivered
        p += 9
        p[0] = message.exchange_length
        memcpy(p + 1, message.exchange, message.exchange_length)
        p += 1 + message.exchange_length
        p[0] = message.routing_key_length
        memcpy(p + 1, message.routing_key, message.routing_key_length)
        p += 1 + message.routing_key_length
        p[0] = FRAME_END
        out.length += payload + 8
        self.write_content(message)
        return self.output.touch()

    cdef int write_content(self, Message* message) except -1:
        """Content header and body frames."""
        cdef Buffer out = self.output.out
        cdef uint32_t part_max = self.output.frame_max - 8
        cdef uint32_t left = message.body_length
        cdef uint32_t part
        cdef const uint8_t* body = message.body
        cdef uint8_t* p = out.room(<size_t> 8 + 12 + message.properties_length
                                   + left + (left // part_max + 1) * 8)
        p[0] = 2
        store16(p + 1, self.number)
        store32(p + 3, 12 + message.properties_length)
        store16(p + 7, 60)
        store16(p + 9, 0)
        store64(p + 11, message.body_length)
        memcpy(p + 19, message.properties, message.properties_length)
        p += 19 + message.properties_length
        p[0] = FRAME_END
        p += 1
        while left:
            part = left if left < part_max else part_max
            p[0] = 3
            store16(p + 1, self.number)
            store32(p + 3, part)
            memcpy(p + 7, body, part)
            p[7 + part] = FRAME_END
            p += 8 + part
            body += part
            left -= part
        out.length = p - out.data
        return 0

    cdef int write_return(self, Message* message) except -1:
        """basic.return 312 NO_ROUTE with the content; it stands before the confirm."""
        cdef Buffer out = self.output.out
        cdef uint32_t payload = (4 + 2 + 9 + 1 + message.exchange_length
                                 + 1 + message.routing_key_length)
        cdef uint8_t* p = out.room(payload + 8)
        p[0] = 1
        store16(p + 1, self.number)
        store32(p + 3, payload)
        store16(p + 7, 60)
        store16(p + 9, 50)
        store16(p + 11, 312)
        p[13] = 8
        memcpy(p + 14, b"NO_ROUTE", 8)
        p += 22
        p[0] = message.exchange_length
        memcpy(p + 1, message.exchange, message.exchange_length)
        p += 1 + message.exchange_length
        p[0] = message.routing_key_length
        memcpy(p + 1, message.routing_key, message.routing_key_length)
        p += 1 + message.routing_key_length
        p[0] = FRAME_END
        out.length += payload + 8
        self.write_content(message)
        return self.output.touch()

    def next_turn(self, callback):
        """Calls `callback()` when the others had their turn."""
        self.output.turn.schedule(callback)

    @property
    def is_full(self):
        """Whether the connection has more to write than it should: nothing more is to be got."""
        return self.output.congested or self.output.out.length > OUT_FULL

    def take_got(self, Consumer consumer, tuple place):
        """The answer to a basic.get is written now: its delivery tag, entered in the ledger where
        it wants an ack."""
        cdef Unacked* entry
        cdef uint64_t tag = self.ledger.next
        if place[3]:
            self.redelivered += 1
        if consumer.no_ack:
            self.ledger.skip_tag()
            self.got_no_ack += 1
            return tag
        entry = self.ledger.add()
        entry.consumer = <void*> consumer
        entry.segment, entry.position, entry.length, redelivered, body_length = place
        entry.word = <uint32_t> body_length << 1 | <uint32_t> redelivered
        consumer.unacked += 1
        self.got += 1
        if self.lingering is None:
            self.lingering = set()
        self.lingering.add(consumer)
        if self.ack_timeouts is not None:
            self.ack_timeouts.add(consumer)
        elif self.connection.has_ack_timeout(consumer.queue):
            self.watch_acks()
        return tag

    # -- settling ----------------------------------------------------------------------------------

    cdef int on_settle(self, uint64_t tag, bint multiple, int how) except -1:
        """basic.ack, nack or reject of one delivery, or of all up to it."""
        cdef Unacked* entry
        cdef uint64_t each, last
        cdef Ledger ledger = self.ledger
        if self.transactional:
            self.check_tag(tag, multiple)
            self.transaction_settles.append((tag, multiple, how))
            return 0
        if not multiple:
            entry = ledger.find(tag)
            if entry == NULL:
                raise PreconditionFailed(f"unknown delivery tag {tag}")
            return self.settle_entry(entry, tag, how)
        if tag == 0:
            last = ledger.next - 1
        else:
            if ledger.find(tag) == NULL:
                raise PreconditionFailed(f"unknown delivery tag {tag}")
            last = tag
        each = ledger.first
        while each <= last:
            entry = ledger.find(each)
            if entry != NULL:
                self.settle_entry(entry, each, how)
            each += 1
        return 0

    def check_tag(self, uint64_t tag, bint multiple):
        """A transaction takes only acks of open deliveries, each once."""
        if multiple and tag == 0:
            return
        if self.ledger.find(tag) == NULL or any(
                each == tag or (many and (each == 0 or each >= tag))
                for each, many, _ in self.transaction_settles):
            raise PreconditionFailed(f"unknown delivery tag {tag}")

    def settle_committed(self, uint64_t tag, bint multiple, int how):
        self.on_settle(tag, multiple, how)

    cdef int settle_entry(self, Unacked* entry, uint64_t tag, int how) except -1:
        cdef Consumer consumer = <Consumer> entry.consumer
        cdef Queue queue = consumer.queue
        cdef Place place
        place.segment = entry.segment
        place.position = entry.position
        place.length = entry.length
        place.redelivered = entry.word & 1
        place.body_length = entry.word >> 1
        self.ledger.settle(entry)
        consumer.unacked -= 1
        if len(consumer.wire_tag) > 1:
            self.consumer_unacked -= 1
        if how == SETTLE_REQUEUE:
            queue.requeue(&place)
        else:
            queue.settle(&place, how == SETTLE_ACK)
        if queue.durable:
            self.acks_unwritten = True
        if how == SETTLE_ACK:
            self.acked += 1
            consumer.acked += 1
        if self.global_prefetch_count:
            self.touch_queues()
        elif consumer.active:
            queue.touch()
        if self.lingering is not None and consumer.unacked == 0:
            self.lingering.discard(consumer)
        return 0

    @property
    def next_tag(self):
        """The delivery tag that comes next."""
        return self.ledger.next

    def holders(self):
        """The consumers, gets included, that have unacknowledged deliveries."""
        found = [each for each in self.consumers.values() if (<Consumer> each).unacked]
        if self.lingering is not None:
            found += self.lingering
        return found

    def first_held(self, uint64_t since, uint64_t before, set queues):
        """The lowest tag in [since, before) whose delivery, from one of the queues, is
        unacknowledged; `before` if there is none."""
        cdef Unacked* entry
        cdef uint64_t each = since if since > self.ledger.first else self.ledger.first
        while each < before:
            entry = self.ledger.find(each)
            if entry != NULL and (<Consumer> entry.consumer).queue in queues:
                return each
            each += 1
        return before

    def watch_acks(self):
        """The consumer timeout of a queue changed, or the broker's."""
        if not self.closing:
            if self.ack_timeouts is None:
                self.ack_timeouts = AckTimeouts(self, self.connection)
            self.ack_timeouts.watch()

    def requeue_all(self):
        """Puts every unacked delivery back: the channel ends, or basic.recover."""
        cdef uint64_t each = self.ledger.first
        cdef uint64_t last = self.ledger.next
        cdef Unacked* entry
        while each < last:
            entry = self.ledger.find(each)
            if entry != NULL:
                self.settle_entry(entry, each, SETTLE_REQUEUE)
            each += 1

    cdef int touch_queues(self) except -1:
        cdef Consumer consumer
        for consumer in self.consumers.values():
            consumer.queue.touch()
        return 0

    def resume(self):
        """Deliveries may go on: the socket took what it had, flow was turned on, or the prefetch
        changed."""
        self.touch_queues()

    def add_consumer(self, Consumer consumer):
        self.consumers[consumer.tag] = consumer
        if not consumer.no_ack and self.connection.has_ack_timeout(consumer.queue):
            self.watch_acks()

    def remove_consumer(self, Consumer consumer):
        """The consumer is gone; it stays alive while the ledger points to it."""
        self.consumers.pop(consumer.tag, None)
        if consumer.unacked:
            if self.lingering is None:
                self.lingering = set()
            self.lingering.add(consumer)

    # -- replies -----------------------------------------------------------------------------------

    def hold(self, bint sync=True, bint records=False):
        """Replies from now on wait until all that was asked for so far is written (and synced);
        with `records` also the messages, which wait in memory while the disk is full."""
        if self.held is None:
            self.held = HeldReplies(self.persister, self.output)
        self.held.wait(functools.partial(self.release, self.held), sync, records)
        self.acks_unwritten = False

    def reply(self, bytes data, then=None):
        """Sends frames in the order of replies; `then()` is called when they are written. A reply
        waits for the acks before it."""
        self.hold_for_acks()
        if self.held is not None:
            self.held.add(data, then)
            return
        self.output.send(data)
        if then is not None:
            then()

    def reserve_reply(self):
        """Keeps the place of a reply that is not known yet: `fill_reply` brings it."""
        self.hold_for_acks()
        if self.held is None:
            self.held = HeldReplies(self.persister, self.output)
        return self.held.reserve()

    def fill_reply(self, HeldReply reply, bytes data, then=None, bint waits=False):
        """As `reply`, at the place that was kept. `waits`: for the acks up to now, not only for
        those before the place."""
        cdef HeldReplies held = self.held
        if held is not None:
            if waits:
                self.hold_for_acks()
            held.fill(reply, data, then, waits)
            self.send_held(held)

    cdef int hold_for_acks(self) except -1:
        if self.acks_unwritten and (self.held is None or not self.held.covers_now()):
            self.hold(False)
        return 0

    def release(self, HeldReplies held, uint64_t ticket):
        """A round is over: lets go of the replies that waited for it."""
        held.over = ticket
        self.send_held(held)

    cdef int send_held(self, HeldReplies held) except -1:
        if self.held is held and held.send() and self.held is held:
            self.held = None
        return 0

    def last_word(self, bytes data):
        """Sends frames behind the replies that are held."""
        if self.held is not None:
            self.held.add(data, None)
        else:
            self.output.send(data)

    def forget_replies(self):
        """The connection ends: nothing is said any more."""
        self.held = None

    def forget_content(self):
        """The channel ends: an unfinished message never happened, and nobody waits for confirms."""
        self.persister.origins.leave(self.serial)
        if self.ack_timeouts is not None:
            self.ack_timeouts.stop()
            self.ack_timeouts = None
        if self.gets is not None:
            self.gets.end()
            self.gets = None
        self.expect = EXPECT_METHOD
        self.kept.release()
        self.drop_collected()
        self.memo.release()
        self.memo_targets = None
        self.memo_exchange = None
        self.memo_version = 0

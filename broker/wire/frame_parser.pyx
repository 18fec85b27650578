# cython: language_level=3
"""A connection's frames: cut, checked, given to their channels; errors turned into closes.

Sans-IO: bytes come in by `receive_buffer` or `feed`, leave by the transport that `Output` writes
to. Methods off the hot path are dispatched by name to the connection (`broker.wire.connection`),
which inherits from this class.
"""

import functools
import logging

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from broker.kernel cimport clock
from broker.kernel.buffer cimport Buffer, load16, load32, load64
from broker.kernel.octets cimport Octets, octets
from broker.kernel.reading cimport CALM_BYTES, FLOOD_BYTES
from broker.kernel.turn cimport Turn
from broker.schema.errors import (
    AMQPError, ChannelFault, CommandInvalid, FrameError, InternalFault, UnexpectedFrame,
    short,
)
from broker.wire.channel cimport Channel, ChannelHost
from broker.wire.deliveries cimport SETTLE_ACK, SETTLE_REJECT, SETTLE_REQUEUE
from broker.wire.argument_lists cimport decode_arguments
from broker.wire.method cimport Method
from broker.wire.method_frames import method_frame
from broker.wire.methods import BY_INDEX, CLASSES
from broker.wire.output cimport Output
from broker.wire.publish_run cimport Run, gather
from broker.wire.upload cimport EXPECT_HEADER, EXPECT_METHOD
from broker.wire.uses cimport (
    CHANNEL_USES, USE_RECV_CNT, USE_RECV_OCT, USE_SEND_CNT, USE_SEND_OCT, add_use,
)

log = logging.getLogger("leveret.connection")

cdef dict METHODS = BY_INDEX

cdef enum:
    FRAME_END = 0xCE
    # The largest frame before connection.tune-ok; tokens as passwords need more than 4096.
    SMALL_FRAME = 8192
    # What an idle connection keeps of the room for a frame that came in parts.
    PARTIAL_KEPT = 4096
    METHOD_PUBLISH = 60 << 16 | 40
    METHOD_ACK = 60 << 16 | 80
    METHOD_REJECT = 60 << 16 | 90
    METHOD_NACK = 60 << 16 | 120
    METHOD_CLOSE_OK = 10 << 16 | 51
    METHOD_CLOSE = 10 << 16 | 50
    CHANNEL_OPEN = 20 << 16 | 10
    CHANNEL_CLOSE_OK = 20 << 16 | 41
    CHANNEL_CLOSE = 20 << 16 | 40
    # Declares and their like take 20 to 50 microseconds: most of one connection in a turn.
    ASKED_MAX = 24
    # And for so long: a quarter of what a turn has for all, so that a client that comes late in
    # one still has its part of it.
    OWN_NS = 500000
    # Deliveries that a method has to wait for; this number takes as long.
    DELIVERIES_ASKED = 64
    # Bytes that are received and thrown away in a nanosecond.
    DISCARDED_BYTES_NS = 2


cdef inline void emptied(Buffer partial) noexcept:
    partial.drop(partial.length)
    if partial.capacity > PARTIAL_KEPT:
        partial.release()


cdef class FrameParser(ChannelHost):
    """The frames of a connection, which inherits from this class, carries out the methods and knows
    the vhost."""

    def __init__(self, Turn turn, transport, int fd=-1, *, uint64_t budget=65536,
                 uint64_t unsent_max=1 << 20, uint64_t unanswered_max=10_000):
        self.turn = turn
        self.transport = transport
        self.output = Output(turn, transport, fd, self)
        self.phase = AWAIT_HEADER
        self.output.frame_max = SMALL_FRAME
        self.partial = Buffer()
        self.slots = [None]
        self.numbered_high = {}
        self.budget = budget
        self.unsent_max = unsent_max
        self.unanswered_max = unanswered_max
        self.channel_max = 0

    def __dealloc__(self):
        free(self.ended)

    cdef void use(self, uint64_t* row) noexcept:
        """Fills a row of the usage feed, which is zero."""
        cdef Channel channel
        cdef int place
        if self.ended != NULL:
            for place in range(CHANNEL_USES):
                row[place] = self.ended[place]
        for channel in self.slots:
            if channel is not None:
                add_use(channel, row)
        if self.numbered_high:
            for channel in self.numbered_high.values():
                add_use(channel, row)
        row[USE_RECV_OCT] = self.recv_oct
        row[USE_SEND_OCT] = self.output.send_oct
        row[USE_RECV_CNT] = self.recv_cnt
        row[USE_SEND_CNT] = self.output.send_cnt

    @property
    def channels(self) -> dict:
        return {channel.number: channel for channel in self.open_channels()}

    @property
    def is_open(self) -> bool:
        return self.phase == RUNNING

    def feed(self, data):
        """Bytes from the peer, split anywhere."""
        cdef Octets received = octets(data)
        if received.length:
            self.receive(received.data, received.length)

    def receive_buffer(self, data, size_t length):
        """The first `length` bytes of a shared receive buffer; nothing points into it
        afterwards."""
        cdef Octets received = octets(data)
        self.receive(received.data, length)

    cdef int receive(self, const uint8_t* data, size_t length) except -1:
        """Takes a chunk apart. An error ends the channel or the connection and never leaves this
        function."""
        cdef size_t at = 0
        cdef size_t wanted
        cdef size_t part
        cdef uint64_t now
        clock.refresh()
        self.began = <uint64_t> clock.monotonic_ns()
        self.count_chunk(length)
        if self.phase >= CLOSING:
            self.discard(length)
            if self.phase == CLOSED:
                return 0
        if self.phase < RUNNING:
            if length > self.budget:
                self.fail(FrameError("too many bytes before login", True))
                return 0
            self.budget -= length
        self.asked = 0
        if self.holding & WAITING:
            self.partial.add(data, length)
            return 0
        if self.phase != CLOSED and self.has_to_wait(length):
            self.partial.add(data, length)
            return 0
        try:
            # What was left of the last chunk becomes one whole frame first.
            while self.partial.length and at < length:
                wanted = 8 if self.phase == AWAIT_HEADER else 7
                if self.partial.length >= wanted and self.phase != AWAIT_HEADER:
                    self.check_size(self.partial.data[0], load32(self.partial.data + 3))
                    wanted = <size_t> load32(self.partial.data + 3) + 8
                part = wanted - self.partial.length
                if part > length - at:
                    part = length - at
                self.partial.add(data + at, part)
                at += part
                if self.partial.length == wanted and wanted >= 8:
                    if self.frames(self.partial.data, wanted) == 0:
                        self.partial.add(data + at, length - at)
                        return 0
                    self.keep()
                    emptied(self.partial)
            if at < length:
                at += self.frames(data + at, length - at)
                self.keep()
                if at < length and self.phase != CLOSED:
                    self.partial.add(data + at, length - at)
            if (self.partial.length == 7 and self.phase != AWAIT_HEADER
                    and not self.holding & WAITING):
                # A frame that is too large is refused with the last octet of its size.
                self.check_size(self.partial.data[0], load32(self.partial.data + 3))
        except AMQPError as error:
            self.fail(error)
        except Exception:
            log.exception("connection %s: internal error", self.label())
            self.fail(InternalFault("internal error; the broker's log has the details"))
        now = <uint64_t> clock.monotonic_ns()
        self.turn.taken_ns += now - self.began
        self.turn.reading.spend(
            self.began, now, self.floods and self.current_method == METHOD_PUBLISH)
        # Once a chunk, whatever was written: returns, confirms and answers are not limited.
        if self.output.congested and self.phase == RUNNING and self.is_stuck:
            self.holding |= UNSENT
            self.stop_reading()
        if self.output.held_replies > self.unanswered_max and self.phase == RUNNING:
            self.holding |= UNANSWERED
            self.stop_reading()
        return 0

    cdef void count_chunk(self, size_t length) noexcept:
        self.heard = self.stirs = True
        self.recv_oct += length
        self.turn.chunks += 1
        self.turn.octets += length
        if length >= FLOOD_BYTES:
            self.floods = True
        elif length < CALM_BYTES:
            self.floods = False

    cdef bint is_between_frames(self) noexcept:
        """Whether all that came was whole frames, and all of them are carried out."""
        return self.partial.length == 0 and self.holding == 0

    @property
    def is_stuck(self):
        """Whether the peer does not read, and more than `unsent_max` bytes wait for it."""
        return self.output.congested and self.output.send_pend > self.unsent_max

    @property
    def is_unread(self):
        """Whether the peer is not read because it does not read its answers, or too many wait."""
        return self.holding & (UNSENT | UNANSWERED) != 0

    cdef int answered(self) except -1:
        if self.holding & UNANSWERED and self.output.held_replies <= self.unanswered_max // 2:
            # A queue may be at work.
            self.turn.wait_in_line(self.take_unanswered)
        return 0

    def take_unanswered(self):
        """Few enough answers wait: takes the rest of what came, then reads on."""
        if self.holding & UNANSWERED:
            self.wait_no_more(UNANSWERED)

    def writable(self):
        """The transport takes bytes again: sends the waiting answers, then reads the rest."""
        self.output.writable()
        if self.holding & UNSENT:
            self.wait_no_more(UNSENT)

    # -- the transport -----------------------------------------------------------------------------

    @property
    def fd(self):
        """The socket that is written to directly; -1: there is none (any more)."""
        return self.output.fd

    @fd.setter
    def fd(self, int fd):
        self.output.fd = fd

    def send(self, bytes data):
        """Adds whole frames, which leave at the end of the turn."""
        self.output.send(data)

    def pause_writing(self):
        """The transport has not got rid of everything: no more deliveries for now."""
        self.output.pause_writing()

    def write_messages(self):
        """From now on each write is a binary message of a WebSocket."""
        self.output.write_messages()

    def allow(self, uint64_t size):
        """This many bytes may still come after the end of the connection."""
        self.budget = size

    def discard(self, uint64_t size):
        """Counts what came after the end and is thrown away; more than is allowed drops the
        transport. To receive it takes time of the turn like what is carried out."""
        self.turn.taken_ns += size // DISCARDED_BYTES_NS
        if self.turn.is_sliced:
            self.turn.wake()
        if size > self.budget:
            self.drop()
        else:
            self.budget -= size

    def hold(self):
        """A password is being checked elsewhere: what the client sent behind it waits for
        `go_on`."""
        self.holding |= PAUSED

    def go_on(self):
        """Takes apart what came since `hold`."""
        self.holding &= ~PAUSED
        self.take_waiting()

    cdef int wait_no_more(self, int reason) except -1:
        """This flag of `holding` is over: takes the rest of what came, then reads on."""
        self.holding &= ~reason
        if self.phase != CLOSED:
            self.read_on()
            self.take_waiting()
        return 0

    cdef int take_waiting(self) except -1:
        """Parses the remaining bytes, if there is no reason to wait any more."""
        cdef bytes waiting
        if self.holding & WAITING or self.partial.length == 0:
            return 0
        waiting = self.partial.data[:self.partial.length]
        emptied(self.partial)
        self.recv_oct -= len(waiting)
        self.budget += len(waiting)
        return self.receive(<const uint8_t*> <char*> waiting, len(waiting))

    @property
    def yielding(self):
        """Whether the rest of what it asked for waits for the next turn of the loop."""
        return self.holding & YIELDING != 0

    def next_turn(self):
        """The next turn has come: reads on."""
        self.wait_no_more(YIELDING)

    cpdef receive_freely(self):
        """The client uses publisher confirms, or sends long messages (`broker/server/rests.py`).
        What comes through a proxy or a relay has a transport of asyncio, which does not care."""
        if not self.receives_freely:
            self.receives_freely = True
            let_grow = getattr(self.transport, "receive_freely", None)
            if let_grow is not None:
                let_grow()

    cpdef await_collected(self, channel):
        """The disk is behind with a body of this channel, or reads it back: parsing stops until
        `collected`."""
        if self.collecting is None:
            self.collecting = channel
            self.holding |= COLLECTING
            self.stop_reading()

    cpdef collected(self, channel):
        """The channel's body needs no more waiting."""
        if self.collecting is channel:
            self.collecting = None
            self.wait_no_more(COLLECTING)

    def await_work(self):
        """Long work takes more than this turn: parsing stops until `work_over`."""
        self.holding |= WORKING
        if self.phase != CLOSED:
            self.stop_reading()

    def work_over(self):
        """It is over."""
        self.wait_no_more(WORKING)

    cpdef route_collected(self, channel):
        """The body is whole, or it failed: routes the message as if its last frame came now."""
        clock.refresh()
        self.current_channel = channel.number
        self.current_method = METHOD_PUBLISH
        try:
            channel.take_collected()
        except AMQPError as error:
            self.fail(error)
        except Exception:
            log.exception("connection %s: internal error", self.label())
            self.fail(InternalFault("internal error; the broker's log has the details"))
        self.collected(channel)

    @property
    def alarmed(self):
        return self.holding & ALARMED != 0

    def set_alarmed(self, bint on):
        """An alarm is in force: the next publish is held back, and everything behind it (`block`
        is called then). Off: publishes are taken again; what was held waits for `go_on`."""
        if on:
            self.holding |= ALARMED
        else:
            self.holding &= ~ALARMED

    cdef int holds_back(self, const uint8_t* frame, size_t length) except -1:
        """Whether the frame has to wait: everything does while WAITING, a basic.publish when
        ALARMED."""
        cdef Channel channel
        if self.holding & WAITING:
            return True
        if (self.phase != RUNNING or length < 11 or frame[0] != 1
                or load32(frame + 7) != METHOD_PUBLISH):
            return False
        channel = self.channel_at(load16(frame + 1))
        if channel is None or channel.closing or channel.upload.expect != EXPECT_METHOD:
            # Not a publish but a fault, or ignored.
            return False
        self.holding |= PAUSED
        self.block()
        return True

    cdef int keep(self) except -1:
        """The bytes end here: unfinished content must not point into them."""
        if self.publishing is not None:
            self.publishing.upload.keep()
            self.publishing = None
        return 0

    def check_size(self, uint8_t kind, uint32_t size):
        """Raises FrameError for a frame above the negotiated maximum."""
        cdef uint32_t largest = self.output.frame_max
        # Eight octets of grace, as in RabbitMQ: some clients fill frame_max with the payload alone.
        if size > largest:
            self.current_method = 0
            raise FrameError(
                f"type {kind}, all octets = <<>>: {{frame_too_large,{size},{largest - 8}}}", True)

    cdef Py_ssize_t frames(self, const uint8_t* data, size_t length) except -1:
        """Carries out every whole frame. Returns how many bytes those were."""
        cdef size_t at = 0
        cdef size_t taken
        cdef uint32_t size
        cdef const uint8_t* frame
        if self.phase == AWAIT_HEADER:
            if length < 8:
                if data[0] != 65:   # not an A: this is no AMQP
                    self.on_protocol_header(data[:length])
                    return length
                return 0
            self.on_protocol_header(data[:8])
            at = 8
        while True:
            try:
                # All frames under one `try`: entering one costs as much as a small frame.
                while length - at >= 8 and self.phase != CLOSED and not (
                        self.holding and self.holds_back(data + at, length - at)):
                    size = load32(data + at + 3)
                    if (data[at] == 1 and length - at >= 11
                            and load32(data + at + 7) == METHOD_PUBLISH):
                        taken = self.publishes(data + at, length - at, size)
                        if taken:
                            at += taken
                            continue
                    if size > self.output.frame_max:
                        self.check_size(data[at], size)
                    if length - at < <size_t> size + 8:
                        break
                    if data[at + 7 + size] != FRAME_END:
                        self.current_method = 0
                        raise FrameError(
                            f"type {data[at]}, all octets = <<>>: "
                            f"{{invalid_frame_end_marker,{data[at + 7 + size]}}}", True)
                    self.recv_cnt += 1
                    self.turn.frames += 1
                    frame = data + at
                    at += size + 8
                    self.frame(frame, size)
                break
            except AMQPError as error:
                if getattr(error, "lost_sync", False):
                    raise
                # The stream is still whole: the frames behind are read on, if only to be ignored.
                self.fail(error)
        if self.phase == CLOSED:
            return length
        return at

    cdef size_t publishes(self, const uint8_t* frame, size_t length, uint32_t size) except? 0:
        """Carries out the publishes that follow each other from a basic.publish of this size on, as
        far as they go together. Returns how many bytes those were; 0: `frame` takes them."""
        cdef Run run
        cdef Channel channel
        if (self.phase != RUNNING or self.holding or size > self.output.frame_max
                or length < <size_t> size + 8 or frame[7 + size] != FRAME_END):
            return 0
        run.channel = load16(frame + 1)
        channel = self.channel_at(run.channel)
        if channel is None or channel.closing or channel.upload.expect != EXPECT_METHOD:
            return 0
        run.frame_max = self.output.frame_max
        run.below = channel.run_below(frame + 13, size - 6)
        if run.below == 0:
            return 0
        gather(&run, frame, length)
        if run.count == 0:
            return 0
        self.keep()
        self.current_channel = run.channel
        self.current_method = METHOD_PUBLISH
        self.recv_cnt += run.frames
        self.turn.frames += run.frames
        channel.route_run(&run)
        return run.length

    cdef int frame(self, const uint8_t* frame, uint32_t size) except -1:
        cdef uint8_t kind = frame[0]
        cdef uint16_t number = load16(frame + 1)
        cdef const uint8_t* payload = frame + 7
        cdef Channel channel
        self.current_channel = number
        self.current_method = 0
        if kind == 1:
            if size < 4:
                raise FrameError("cannot decode: a method frame without class and method")
            return self.method(number, payload, size)
        if kind == 8:
            if number != 0:
                raise UnexpectedFrame("heartbeat on a channel other than 0")
            return 0
        if kind != 2 and kind != 3:
            raise FrameError(f"type {kind}, all octets = <<>>: unknown_frame", True)
        if self.phase == CLOSING:
            return 0
        if number == 0:
            raise UnexpectedFrame("content on channel 0")
        channel = self.publishing
        if channel is None or channel.number != number:
            channel = self.channel_at(number)
            if channel is None:
                raise ChannelFault("expected 'channel.open'")
        if channel.closing:
            return 0
        if channel.upload.expect != EXPECT_METHOD:
            # The method in progress is the publish of this content.
            self.current_method = METHOD_PUBLISH
        if self.publishing is not channel:
            self.keep()
        if kind == 2:
            if channel.upload.header(payload, size):
                channel.content()
            elif not self.receives_freely and channel.upload.is_long():
                self.receive_freely()
        elif channel.upload.is_whole_body(payload, size):
            channel.content()
        else:
            channel.on_body_part(payload, size)
        self.publishing = channel if channel.upload.expect != EXPECT_METHOD else None
        return 0

    cdef int method(self, uint16_t number, const uint8_t* payload, uint32_t size) except -1:
        cdef uint32_t index = load32(payload)
        cdef Channel channel
        self.current_method = index
        if self.phase != RUNNING or number == 0:
            return self.connection_method(number, index, payload[:size])
        channel = self.channel_at(number)
        if channel is None:
            if index == CHANNEL_OPEN:
                return self.cold_method(None, index, payload[:size])
            if index == CHANNEL_CLOSE_OK:
                return 0
            if index == CHANNEL_CLOSE:
                self.output.send(method_frame(number, "channel.close-ok"))
                return 0
            raise ChannelFault("expected 'channel.open'")
        if channel.closing:
            if index == CHANNEL_CLOSE_OK or index == CHANNEL_CLOSE:
                self.cold_method(channel, index, payload[:size])
            return 0
        if channel.upload.expect != EXPECT_METHOD:
            # The publish without content is at fault.
            self.current_method = METHOD_PUBLISH
            if channel.upload.expect == EXPECT_HEADER:
                raise UnexpectedFrame(
                    "expected content header for class 60, got non content header frame instead")
            raise UnexpectedFrame("expected content body, got non content body frame instead")
        if index == METHOD_PUBLISH:
            self.keep()
            channel.on_publish(payload + 4, size - 4)
            self.publishing = channel
            return 0
        if index == METHOD_ACK and size == 13:
            return channel.settle(load64(payload + 4), payload[12] & 1, SETTLE_ACK)
        if index == METHOD_NACK and size == 13:
            return channel.settle(load64(payload + 4), payload[12] & 1,
                                  SETTLE_REQUEUE if payload[12] & 2 else SETTLE_REJECT)
        if index == METHOD_REJECT and size == 13:
            return channel.settle(load64(payload + 4), False,
                                  SETTLE_REQUEUE if payload[12] & 1 else SETTLE_REJECT)
        return self.cold_method(channel, index, payload[:size])

    cdef int connection_method(self, uint16_t number, uint32_t index, bytes payload) except -1:
        """A method on channel 0, or before the connection is open."""
        if self.phase == CLOSING:
            if index == METHOD_CLOSE_OK:
                self.finish()
            elif index == METHOD_CLOSE:
                self.output.send(method_frame(0, "connection.close-ok"))
            return 0
        if self.phase == RUNNING and index >> 16 != 10:
            raise ChannelFault("unexpected method in connection state running")
        if number != 0:
            raise ChannelFault("expected a method of class connection on channel 0")
        return self.cold_method(None, index, payload)

    cdef int cold_method(self, Channel channel, uint32_t index, bytes payload) except -1:
        """Decodes a method off the hot path and carries it out."""
        cdef uint64_t delivered = self.turn.delivered
        cdef Method method = METHODS.get(index)
        self.asked += 1
        if method is None:
            if index >> 16 in CLASSES:
                raise FrameError(
                    f"cannot decode: method {index & 0xffff} of class {index >> 16} is unknown")
            raise CommandInvalid(f"class {index >> 16} is unknown")
        if not method.from_client:
            raise CommandInvalid(f"{method.name} is sent by servers only")
        self.on_method(
            channel, self.current_channel, method.name, decode_arguments(method, payload))
        # Queues may have had a backlog to deliver first.
        return self.count_asked((self.turn.delivered - delivered) // DELIVERIES_ASKED)

    def when_there_is_time(self, callback):
        """Calls `callback()`, in a turn to come if this one has no time left."""
        self.turn.when_there_is_time(callback)

    cpdef count_work(self, uint64_t more):
        """A method did as much work as `more` others."""
        self.count_asked(more)

    cdef int count_asked(self, uint64_t more) except -1:
        """After enough methods, or time, the rest of what came waits for the next turn of the
        loop."""
        cdef uint64_t spent = <uint64_t> clock.monotonic_ns() - self.began
        self.asked += more
        if self.asked >= ASKED_MAX or spent >= OWN_NS or self.turn.is_late_after(spent):
            self.give_way()
        return 0

    cdef int give_way(self) except -1:
        """What came, or the rest of it, waits for the next turn of the loop."""
        if (self.turn.schedule is not None and self.phase != CLOSED
                and not self.holding & YIELDING):
            self.holding |= YIELDING
            self.stop_reading()
            self.turn.wait_in_line(self.next_turn)
        return 0

    cdef bint has_to_wait(self, size_t length) except -1:
        """Whether this turn, or what it has for publishes, is over: then the chunk waits."""
        if self.turn.is_late():
            self.give_way()
            return True
        if (self.floods and self.current_method == METHOD_PUBLISH
                and self.turn.reading.is_over() and not self.answers(length)):
            self.await_credit()
            return True
        return False

    cdef bint answers(self, size_t length) except -1:
        """Whether the chunk comes from a client that works off deliveries and publishes the
        results: the acks among them do not wait."""
        return length < self.turn.reading.offered and self.has_unacked()

    cdef bint has_unacked(self) except -1:
        cdef Channel channel
        for channel in self.slots:
            if channel is not None and channel.deliveries.ledger.count:
                return True
        return False

    cdef bint stays_unread(self) except -1:
        """Whether what has come waits in the socket: the client floods, and what the turn has for
        publishes is over."""
        if (not self.floods or self.current_method != METHOD_PUBLISH or self.phase != RUNNING
                or self.holding & WAITING or self.has_unacked()):
            return False
        self.began = <uint64_t> clock.monotonic_ns()
        self.await_credit()
        return True

    cdef int await_credit(self) except -1:
        """It published, and publishes have had their share of the time: what came waits."""
        if not self.holding & YIELDING:
            self.holding |= YIELDING
            self.stop_reading()
            self.turn.wake()
            self.turn.reading.wait(
                self.next_turn, self.began, <uint64_t> clock.monotonic_ns())
        return 0

    cdef Channel channel_at(self, uint16_t number):
        if number < len(self.slots):
            return <Channel> self.slots[number]
        return self.numbered_high.get(number)

    cdef list open_channels(self):
        return [each for each in (*self.slots, *self.numbered_high.values()) if each is not None]

    def find_channel(self, uint16_t number):
        return self.channel_at(number)

    def put_channel(self, Channel channel):
        self.channel_count += 1
        if channel.number > self.channel_max:
            # Any number is allowed. One shall not cost the room of all below it.
            self.numbered_high[channel.number] = channel
            return
        while len(self.slots) <= channel.number:
            self.slots.append(None)
        self.slots[channel.number] = channel

    def drop_channel(self, Channel channel):
        """Removes a channel; its parts are not used any more. Its counters stay."""
        self.remove_channel(channel)

    cdef int remove_channel(self, Channel channel) except -1:
        """The same."""
        if self.channel_at(channel.number) is not channel:
            return 0
        if self.ended == NULL:
            self.ended = <uint64_t*> calloc(CHANNEL_USES, sizeof(uint64_t))
        if self.ended != NULL:
            add_use(channel, self.ended)
        if self.publishing is channel:
            self.publishing = None
        self.channel_count -= 1
        if channel.number > self.channel_max:
            del self.numbered_high[channel.number]
            return 0
        self.slots[channel.number] = None
        while len(self.slots) > 1 and self.slots[len(self.slots) - 1] is None:
            self.slots.pop()
        return 0

    cdef int uncongested(self) except -1:
        for channel in self.slots:
            if channel is not None:
                channel.resume()
        if self.numbered_high:
            for channel in self.numbered_high.values():
                channel.resume()
        return 0

    def stop_deliveries(self, bint are_silent):
        """The connection ends: its channels take no more deliveries, and if they are silent,
        nothing is written for them. Returns those that have to be ended."""
        cdef Channel channel
        found = []
        for channel in self.open_channels():
            channel.deliveries.stop()
            if not channel.closing:
                found.append(channel)
            if are_silent:
                channel.begin_closing()
                channel.replies.forget()
        return found

    def fail(self, error):
        """The one place where an error becomes channel.close or connection.close."""
        cdef Channel channel
        if self.phase == CLOSING or self.phase == CLOSED:
            return
        class_id, method_id = self.current_method >> 16, self.current_method & 0xffff
        text = error.reply_text()
        if self.phase != RUNNING:
            self.fail_handshake(error, class_id, method_id)
            return
        if not error.hard and self.current_channel != 0:
            channel = self.channel_at(self.current_channel)
            if channel is not None:
                self.close_channel(channel, error, class_id, method_id)
                return
        log.warning("connection %s closed: %s", self.label(), text)
        self.close_with(
            error.reply_code, text, class_id, method_id, getattr(error, "lost_sync", False))

    def close_channel(self, Channel channel, error, int class_id, int method_id):
        """Sends channel.close; frames of the channel are ignored until its close-ok."""
        if channel.closing or self.after_work(functools.partial(
                self.close_channel, channel, error, class_id, method_id)):
            return
        text = error.reply_text()
        log.info("connection %s, channel %d closed: %s", self.label(), channel.number, text)
        # What was published before the fault is delivered before it.
        channel.deliveries.deliver_pending()
        channel.begin_closing()
        self.end_channel(channel, functools.partial(channel.replies.send_last, method_frame(
            channel.number, "channel.close", reply_code=error.reply_code, reply_text=text,
            class_id=class_id, method_id=method_id)))

    def close_with(self, int code, str text, int class_id, int method_id, bint lost_sync=False):
        """Sends connection.close with what of the text has room in it, and waits for close-ok; a
        stream that cannot be read on is dropped soon."""
        if self.after_work(functools.partial(
                self.close_with, code, text, class_id, method_id, lost_sync)):
            return
        if self.phase >= CLOSING:
            return
        self.keep()
        self.phase = CLOSING
        # Confirms of safe messages are sent before the close; after it, none.
        self.output.write_confirms()
        self.output.cut_large()
        self.end_channels()
        self.output.send(method_frame(
            0, "connection.close", reply_code=code, reply_text=short(text), class_id=class_id,
            method_id=method_id))
        if lost_sync:
            self.phase = CLOSED
            self.output.work()
        self.await_close_ok(lost_sync)

    def set_tuned(self, uint16_t channel_max, uint32_t frame_max):
        self.channel_max = channel_max
        self.output.frame_max = frame_max

    def set_phase(self, int phase):
        self.phase = phase

    def set_closed(self):
        """The transport is closed: it is not read or written any more."""
        self.phase = CLOSED
        self.output.close()
        self.publishing = None

    # -- hooks: what the frames ask of the connection, which defines all of them -------------------

    cpdef label(self):
        """The connection's name, for the log."""
        raise NotImplementedError

    cpdef on_protocol_header(self, bytes header):
        """The first eight bytes came."""
        raise NotImplementedError

    cpdef on_method(self, channel, int number, str name, dict arguments):
        """A method off the hot path came. Raises AMQPError."""
        raise NotImplementedError

    cpdef fail_handshake(self, error, int class_id, int method_id):
        """An error before the connection is open."""
        raise NotImplementedError

    cpdef stop_reading(self):
        """Reads nothing from the transport until `read_on`."""
        raise NotImplementedError

    cpdef read_on(self):
        """Reads the transport again, if nothing else is against it."""
        raise NotImplementedError

    cpdef block(self):
        """A publish came during an alarm."""
        raise NotImplementedError

    cpdef after_work(self, callback):
        """Whether long work is under way; `callback()` is called behind it then."""
        raise NotImplementedError

    cpdef end_channel(self, channel, then):
        """Ends a channel; `then()` is called when that is done."""
        raise NotImplementedError

    cpdef end_channels(self, bint are_silent=True):
        """Ends all channels."""
        raise NotImplementedError

    cpdef await_close_ok(self, bint lost_sync):
        """connection.close is sent: bounds the time that the client has for its answer."""
        raise NotImplementedError

    cpdef finish(self):
        """All is sent: ends the transport when the client has, or after a bounded time."""
        raise NotImplementedError

    cpdef drop(self):
        """Ends the transport without another word."""
        raise NotImplementedError

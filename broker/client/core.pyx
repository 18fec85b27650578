# cython: language_level=3
"""The client's protocol without input and output: bytes in, events and bytes out.

The caller feeds what it reads to `receive`, acts on `events`, and writes `take_output()` whenever
it is not empty. Events are tuples; their first word says what happened:

    ("open",)                         the connection may be used
    ("blocked", reason), ("unblocked",)
    ("reply", token, arguments)       the reply to a request; for basic.get a Message or None
    ("failed", token, error)          the request will have no reply
    ("deliveries", consumer)          its batch has whole messages; drop them when done
    ("confirms", channel)             its `unconfirmed` has changed
    ("returned", channel)             its `returns` has whole messages
    ("cancelled", consumer)           the server took its queue away
    ("channel-closed", channel, error)
    ("closed", error)                 the end; nothing follows

Bounds: a frame is no longer than was agreed on, but for content headers: those cannot be split, and
brokers send them whole where what was added to a message, by dead-lettering for instance, makes
them longer. They have at most HEADER_MAX bytes, a body has at most `body_max`; what a server can
make the client keep is bounded by the prefetch times that.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp

from broker.client.channel cimport FIRST_FRAME, OVERHEAD, ChannelCore, Link
from broker.client.errors import ConnectionClosed, ConnectionLost, ProtocolError
from broker.fields.codec import Malformed
from broker.kernel.buffer cimport Buffer, load16, load32
from broker.kernel.octets cimport Octets, octets
from broker.schema.errors import short
from broker.wire.argument_lists cimport decode_arguments
from broker.wire.method cimport Method
from broker.wire.method_frames import method_frame
from broker.wire.methods import BY_INDEX

cdef enum:
    FRAME_END = 0xCE
    CONTENT_HEADER = 2
    # Four times the largest frame that this broker can be set up to take a header in.
    HEADER_MAX = 64 * 1024 * 1024
    DELIVER = 60 << 16 | 60
    RETURN = 60 << 16 | 50
    GET_OK = 60 << 16 | 71
    ACK = 60 << 16 | 80
    NACK = 60 << 16 | 120

cdef enum Phase:
    AWAIT_START = 0
    AWAIT_TUNE
    AWAIT_OPEN
    RUNNING
    CLOSING
    ENDED

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"


cdef class ClientCore:
    """One connection. `settings` is a `broker.client.uri.Endpoint`: who logs in where, and what is
    offered."""

    def __init__(self, settings, *, uint64_t body_max=512 * 1024 * 1024):
        self.settings = settings
        self.link = Link(body_max)
        self.partial = Buffer()
        self.phase = AWAIT_START
        self.server_properties = {}
        self.link.out.append(PROTOCOL_HEADER)

    @property
    def is_open(self) -> bool:
        return self.phase == RUNNING

    @property
    def events(self) -> list:
        return self.link.events

    @property
    def closed(self):
        """The error that ended the connection, or None."""
        return self.link.closed

    @property
    def frame_max(self) -> int:
        return self.link.frame_max

    def take_output(self) -> bytes:
        """What is to be written now."""
        return self.link.out.take()

    @property
    def pending(self) -> int:
        """Bytes that wait to be taken."""
        return self.link.out.length

    def receive(self, data, size_t length):
        """The first `length` bytes of a buffer, as they were read; nothing points into it
        afterwards. Never raises for what a server sends: that ends in a `closed` event."""
        cdef Octets received
        cdef size_t done
        if length == 0 or self.phase == ENDED:
            return
        received = octets(data)
        try:
            if self.partial.length:
                self.partial.add(received.data, length)
                done = self.parse(self.partial.data, self.partial.length)
                self.partial.drop(done)
            else:
                done = self.parse(received.data, length)
                if self.phase != ENDED:
                    self.partial.add(received.data + done, length - done)
        except (ProtocolError, Malformed) as error:
            self.refuse(error)
        if self.phase == ENDED:
            self.partial.release()
        self.link.tell()

    def feed(self, data):
        """`receive` for all of a buffer."""
        self.receive(data, len(data))

    cdef size_t parse(self, const uint8_t* data, size_t length) except? 0:
        """Takes whole frames; returns how many bytes they were."""
        cdef size_t at = 0
        cdef uint32_t size
        if self.phase == AWAIT_START and length >= 4 and memcmp(data, b"AMQP", 4) == 0:
            raise ProtocolError("the server speaks another version of AMQP")
        while length - at >= 7 and self.phase != ENDED:
            size = load32(data + at + 3)
            if (size > self.link.frame_max - OVERHEAD and self.link.frame_max
                    and (data[at] != CONTENT_HEADER or size > HEADER_MAX)):
                raise ProtocolError(
                    f"a frame of {<uint64_t> size + OVERHEAD} bytes; "
                    f"{self.link.frame_max} were agreed on")
            if length - at < size + OVERHEAD:
                break
            if data[at + 7 + size] != FRAME_END:
                raise ProtocolError("a frame does not end with 0xCE")
            self.frame(data[at], load16(data + at + 1), data + at + 7, size)
            at += size + OVERHEAD
        return at

    cdef ChannelCore channel_of(self, uint16_t number):
        return self.link.channels[number] if number < len(self.link.channels) else None

    cdef int frame(self, uint8_t kind, uint16_t number, const uint8_t* p, uint32_t size) except -1:
        cdef ChannelCore channel
        if kind == 8:
            return 0
        if kind == 1:
            return self.method(number, p, size)
        if kind != CONTENT_HEADER and kind != 3:
            raise ProtocolError(f"a frame of type {kind}")
        channel = self.channel_of(number)
        if channel is None:
            # What was under way when the channel was closed.
            return 0
        if kind == CONTENT_HEADER:
            return channel.content_header(p, size)
        return channel.content_body(p, size)

    cdef int method(self, uint16_t number, const uint8_t* p, uint32_t size) except -1:
        cdef ChannelCore channel
        cdef Method row
        cdef uint32_t index
        if size < 4:
            raise ProtocolError("a method frame is too short")
        index = load32(p)
        if number:
            channel = self.channel_of(number)
            if channel is None:
                return 0
            if channel.stage:
                raise ProtocolError(f"a method on channel {number} before its content was whole")
            if index == DELIVER:
                return channel.deliver(p + 4, size - 4)
            if index == ACK or index == NACK:
                return channel.confirm(p + 4, size - 4, index == ACK)
            if index == GET_OK:
                return channel.begin_got(p + 4, size - 4)
            if index == RETURN:
                return channel.begin_returned(p + 4, size - 4)
        row = BY_INDEX.get(index)
        if row is None:
            raise ProtocolError(f"method {index >> 16}, {index & 0xffff} is unknown")
        arguments = decode_arguments(row, (<char*> p)[:size])
        if number:
            channel.method(row.name, arguments)
        else:
            self.on_method(row.name, arguments)
        return 0

    def on_method(self, str name, dict arguments):
        """A method of the connection itself."""
        if name == "connection.close":
            error = ConnectionClosed(arguments["reply_code"], arguments["reply_text"],
                                     arguments["class_id"] << 16 | arguments["method_id"])
            self.link.out.append(method_frame(0, "connection.close-ok"))
            self.end(error)
        elif self.phase == CLOSING:
            if name == "connection.close-ok":
                self.end(ConnectionClosed(200, "closed by this client"))
        elif name == "connection.start" and self.phase == AWAIT_START:
            self.start(arguments)
        elif name == "connection.tune" and self.phase == AWAIT_TUNE:
            self.tune(arguments)
        elif name == "connection.open-ok" and self.phase == AWAIT_OPEN:
            self.phase = RUNNING
            self.link.events.append(("open",))
        elif name == "connection.blocked":
            self.blocked = arguments["reason"]
            self.link.events.append(("blocked", self.blocked))
        elif name == "connection.unblocked":
            self.blocked = None
            self.link.events.append(("unblocked",))
        else:
            raise ProtocolError(f"{name} came at the wrong time")

    def start(self, dict arguments):
        """Logs in, with the mechanism of the settings."""
        self.server_properties = arguments["server_properties"]
        offered = arguments["mechanisms"].decode("utf-8", "replace").split()
        mechanism = self.settings.mechanism
        if mechanism not in offered:
            raise ProtocolError(
                f"the server does not offer the mechanism {mechanism}, only {', '.join(offered)}")
        self.link.out.append(method_frame(
            0, "connection.start-ok", client_properties=self.settings.client_properties,
            mechanism=mechanism, response=self.settings.response, locale="en_US"))
        self.phase = AWAIT_TUNE

    def tune(self, dict arguments):
        """Settles the limits: the lower one, where neither side says 0 (no limit)."""
        settings = self.settings
        self.channel_max = agreed(settings.channel_max, arguments["channel_max"])
        self.link.frame_max = agreed(settings.frame_max, arguments["frame_max"])
        self.heartbeat = agreed(settings.heartbeat, arguments["heartbeat"])
        if self.link.frame_max and self.link.frame_max < 4096:
            raise ProtocolError(f"a frame_max of {self.link.frame_max} is less than 4096")
        self.link.out.append(method_frame(
            0, "connection.tune-ok", channel_max=self.channel_max, frame_max=self.link.frame_max,
            heartbeat=self.heartbeat))
        self.link.out.append(method_frame(0, "connection.open", virtual_host=settings.vhost))
        # No limit: bodies are cut into frames of this size all the same.
        self.link.frame_max = self.link.frame_max or FIRST_FRAME
        self.phase = AWAIT_OPEN

    def open_channel(self, token):
        """A new channel; channel.open-ok goes to the token. Raises ValueError if there are as many
        as the server allows."""
        cdef uint16_t number
        if self.link.closed is not None:
            raise self.link.closed
        most = self.channel_max or 65535
        for number in range(1, len(self.link.channels)):
            if self.link.channels[number] is None:
                break
        else:
            number = <uint16_t> len(self.link.channels)
            if len(self.link.channels) > most:
                raise ValueError(f"the server allows {most} channels")
            self.link.channels.append(None)
        channel = ChannelCore(self.link, number)
        self.link.channels[number] = channel
        channel.request("channel.open", token)
        return channel

    def send_heartbeat(self):
        """A heartbeat frame."""
        self.link.out.append(b"\x08\0\0\0\0\0\0\xce")

    def close(self, code=200, text="closed"):
        """connection.close; a `closed` event follows when the server has answered."""
        if self.phase < CLOSING:
            self.link.out.append(
                method_frame(0, "connection.close", reply_code=code, reply_text=text))
            self.phase = CLOSING

    def lost(self, error):
        """The transport ended. Everything that waits fails."""
        if self.phase == AWAIT_TUNE:
            # Brokers without authentication_failure_close drop whom they refuse.
            error = ConnectionLost(f"{error}; the login may have been refused")
        self.end(error)

    def refuse(self, error):
        """The server broke the protocol."""
        reply = getattr(error, "code", 501)
        self.link.out.append(
            method_frame(0, "connection.close", reply_code=reply, reply_text=short(str(error))))
        self.end(error if isinstance(error, ProtocolError) else ProtocolError(str(error)))

    def end(self, error):
        """The connection is over; every channel and request learns why."""
        cdef ChannelCore channel
        if self.phase == ENDED:
            return
        self.phase = ENDED
        self.link.closed = error
        for channel in list(self.link.channels):
            if channel is not None:
                channel.closed = error
                channel.is_open = False
                if channel.target is not None:
                    channel.target.abandon()
                while channel.waiting:
                    _, token = channel.waiting.popleft()
                    self.link.events.append(("failed", token, error))
        self.link.tell()
        self.link.events.append(("closed", error))


def agreed(ours, theirs) -> int:
    """The value both sides keep: the lower one, or the only one that is not 0."""
    return max(ours, theirs) if 0 in (ours, theirs) else min(ours, theirs)

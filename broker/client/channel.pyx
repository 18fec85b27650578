# cython: language_level=3
"""One channel of the client: requests and their replies, publishes, deliveries and confirms."""

from collections import deque

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from broker.client.batch cimport Batch, Entry
from broker.client.errors import ChannelClosed, ProtocolError
from broker.client.measuring cimport Histogram
from broker.client.unconfirmed cimport Unconfirmed
from broker.kernel.buffer cimport Buffer, load16, load64, store16, store32, store64
from broker.kernel.octets cimport Octets, octets
from broker.wire.method_frames import method_frame

cdef enum:
    FRAME_END = 0xCE
    # The longest method frame of a publish: two short strings and the fixed fields.
    METHOD_MAX = 4 + 2 + 256 + 256 + 1

cdef enum Stage:
    NO_CONTENT = 0
    AWAIT_CONTENT_HEADER
    AWAIT_BODY


cdef class ConsumerCore:
    """One consumer; deliveries are in `batch`."""

    def __init__(self, bytes tag, owner=None):
        self.tag = tag
        self.owner = owner
        self.batch = Batch()


cdef class Link:
    """What the channels of a connection share: bytes to write, events, limits, and its end."""

    def __init__(self, uint64_t body_max):
        self.out = Buffer()
        self.events = []
        self.channels = [None]
        self.delivered = []
        self.confirmed = []
        self.frame_max = FIRST_FRAME
        self.body_max = body_max

    cdef int tell(self) except -1:
        """Enters what changed for consumers and confirms into the events."""
        cdef ConsumerCore consumer
        cdef ChannelCore channel
        if self.delivered:
            for consumer in self.delivered:
                consumer.is_dirty = False
                self.events.append(("deliveries", consumer))
            self.delivered.clear()
        if self.confirmed:
            for channel in self.confirmed:
                channel.has_confirms = False
                self.events.append(("confirms", channel))
            self.confirmed.clear()
        return 0


cdef class ChannelCore:
    """One channel. Requests are answered in their order."""

    def __init__(self, Link link, uint16_t number):
        self.link = link
        self.number = number
        self.waiting = deque()
        self.consumers = []
        self.returns = Batch()
        self.return_texts = []
        self.stage = NO_CONTENT

    # What the caller asks.

    def request(self, str name, token, **arguments):
        """Sends a method whose reply goes to the token. Raises the error that closed the channel,
        or ValueError for an argument that does not fit."""
        self.check()
        frame = self.framed(name, arguments)
        self.waiting.append((name, token))
        self.link.out.append(frame)

    def send(self, str name, **arguments):
        """Sends a method without a reply. Raises as `request`."""
        self.check()
        self.link.out.append(self.framed(name, arguments))

    cdef bytes framed(self, str name, dict arguments):
        """The frame of a method. Raises ValueError where a server would close the connection for
        its length."""
        cdef bytes frame = method_frame(self.number, name, **arguments)
        if len(frame) > self.link.frame_max:
            raise ValueError(
                f"{name} of {len(frame)} bytes is longer than a frame of {self.link.frame_max}")
        return frame

    def check(self):
        """Raises the error that closed the channel or the connection."""
        if self.closed is not None:
            raise self.closed
        if self.link.closed is not None:
            raise self.link.closed

    def select_confirms(self, Histogram histogram=None):
        """Counts publishes from now on; call it when confirm.select-ok has come."""
        if self.unconfirmed is None:
            self.unconfirmed = Unconfirmed(histogram)

    def add_consumer(self, bytes tag, owner=None):
        """Notes a consumer before basic.consume is sent: deliveries may come with its reply."""
        consumer = ConsumerCore(tag, owner)
        self.consumers.append(consumer)
        return consumer

    def remove_consumer(self, ConsumerCore consumer):
        """Forgets a consumer; what still comes for it is dropped."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
        if self.last is consumer:
            self.last = None

    def publish(self, bytes exchange, bytes routing_key, bytes properties, body,
                bint mandatory=False):
        """Publishes one message and returns its sequence number (0 without confirms).
        `properties`: flags and list as broker.fields.properties.encode gives them. Raises the error
        that closed the channel, or ValueError for names or properties that are too long."""
        cdef uint8_t[METHOD_MAX] method
        cdef size_t length
        cdef Octets content = octets(body)
        self.check()
        length = publish_method(method, exchange, len(exchange), routing_key, len(routing_key),
                                mandatory)
        # Before it is numbered: a number without a publish would never be confirmed.
        check_properties(self.link, len(properties))
        cdef uint64_t number = self.unconfirmed.publish() if self.unconfirmed is not None else 0
        self.content(method, length, <const uint8_t*> <char*> properties, len(properties),
                     content.data, content.length)
        return number

    def republish(self, Batch batch, size_t first, size_t last, bytes exchange=None,
                  bytes routing_key=None, bint mandatory=False):
        """Publishes the messages [first, last) of a batch as they are, to another exchange or key
        where one is given. Returns the sequence number of the first (0 without confirms)."""
        cdef uint8_t[METHOD_MAX] method
        cdef Entry* entry
        cdef const uint8_t* at
        cdef const uint8_t* own_exchange = NULL
        cdef const uint8_t* own_key = NULL
        cdef size_t own_exchange_length = 0
        cdef size_t own_key_length = 0
        cdef size_t index, length
        cdef uint64_t number = 0
        self.check()
        if last > batch.count or first > last:
            raise IndexError(f"messages {first} to {last} of {batch.count}")
        if exchange is not None:
            own_exchange, own_exchange_length = <const uint8_t*> <char*> exchange, len(exchange)
        if routing_key is not None:
            own_key, own_key_length = <const uint8_t*> <char*> routing_key, len(routing_key)
        for index in range(first, last):
            entry = &batch.entries[index]
            at = batch.bytes.data + entry.start
            length = publish_method(
                method,
                own_exchange if exchange is not None else at,
                own_exchange_length if exchange is not None else entry.exchange_length,
                own_key if routing_key is not None else at + entry.exchange_length,
                own_key_length if routing_key is not None else entry.key_length,
                mandatory)
            check_properties(self.link, entry.properties_length)
            if self.unconfirmed is not None:
                number = self.unconfirmed.publish()
            at += entry.exchange_length + entry.key_length
            self.content(method, length, at, entry.properties_length,
                         at + entry.properties_length, entry.body_length)
        return number - (last - first) + 1 if number else 0

    cdef int content(self, const uint8_t* method, size_t method_length,
                     const uint8_t* properties, size_t properties_length,
                     const uint8_t* body, size_t body_length) except -1:
        """Frames of a message: method, header, and bodies of at most frame_max. The caller has
        checked the properties."""
        cdef Buffer out = self.link.out
        cdef size_t most = self.link.frame_max - OVERHEAD
        cdef size_t part
        cdef uint8_t* p
        p = out.room(method_length + properties_length + HEADER_FIXED + 2 * OVERHEAD)
        p = frame_head(p, 1, self.number, <uint32_t> method_length)
        memcpy(p, method, method_length)
        p += method_length
        p[0] = FRAME_END
        p = frame_head(p + 1, 2, self.number, <uint32_t> (HEADER_FIXED + properties_length))
        store32(p, 60 << 16)
        store64(p + 4, body_length)
        memcpy(p + HEADER_FIXED, properties, properties_length)
        p[HEADER_FIXED + properties_length] = FRAME_END
        out.length += method_length + properties_length + HEADER_FIXED + 2 * OVERHEAD
        while body_length:
            part = body_length if body_length < most else most
            p = frame_head(out.room(part + OVERHEAD), 3, self.number, <uint32_t> part)
            memcpy(p, body, part)
            p[part] = FRAME_END
            out.length += part + OVERHEAD
            body += part
            body_length -= part
        return 0

    def ack(self, uint64_t tag, bint multiple=False):
        """basic.ack of one delivery, or of all up to it."""
        self.settle(80, tag, multiple)

    def nack(self, uint64_t tag, bint multiple=False, bint requeue=True):
        """basic.nack: back to the queue, or to the dead letters."""
        self.settle(120, tag, multiple | requeue << 1)

    cdef int settle(self, uint16_t method, uint64_t tag, uint8_t bits) except -1:
        cdef Buffer out = self.link.out
        cdef uint8_t* p
        self.check()
        p = frame_head(out.room(13 + OVERHEAD), 1, self.number, 13)
        store16(p, 60)
        store16(p + 2, method)
        store64(p + 4, tag)
        p[12] = bits
        p[13] = FRAME_END
        out.length += 13 + OVERHEAD
        return 0

    # What the server sends.

    cdef ConsumerCore find(self, const uint8_t* tag, uint8_t length):
        cdef ConsumerCore consumer = self.last
        if (consumer is not None and len(consumer.tag) == length
                and memcmp(<char*> consumer.tag, tag, length) == 0):
            return consumer
        for consumer in self.consumers:
            if len(consumer.tag) == length and memcmp(<char*> consumer.tag, tag, length) == 0:
                self.last = consumer
                return consumer
        return None

    cdef int deliver(self, const uint8_t* p, uint32_t size) except -1:
        """basic.deliver behind its method number: tag, delivery tag, flags, exchange, key."""
        cdef const uint8_t* end = p + size
        cdef const uint8_t* names
        cdef ConsumerCore consumer
        cdef Entry* entry
        if size < 1 or end - p < 1 + p[0] + 9:
            raise ProtocolError("basic.deliver is too short")
        consumer = self.find(p + 1, p[0])
        self.receiver = consumer
        # Deliveries to a consumer that was just cancelled are read and dropped.
        self.target = consumer.batch if consumer is not None else Batch()
        p += 1 + p[0]
        entry = self.target.begin()
        entry.tag = load64(p)
        entry.redelivered = p[8] & 1
        names = p + 9
        self.add_names(entry, names, end)
        self.stage = AWAIT_CONTENT_HEADER
        return 0

    cdef const uint8_t* add_names(self, Entry* entry, const uint8_t* p,
                                  const uint8_t* end) except NULL:
        """Exchange and routing key of the entry that was begun; returns what follows them."""
        if end - p < 1 or end - p < 1 + p[0] + 1 or end - p < 1 + p[0] + 1 + p[1 + p[0]]:
            self.target.is_open = False
            raise ProtocolError("the names of a message are too short")
        entry.exchange_length = p[0]
        self.target.bytes.add(p + 1, p[0])
        p += 1 + p[0]
        entry.key_length = p[0]
        self.target.bytes.add(p + 1, p[0])
        return p + 1 + p[0]

    cdef int begin_got(self, const uint8_t* p, uint32_t size) except -1:
        """basic.get-ok: delivery tag, flags, exchange, key, messages that are left."""
        cdef Entry* entry
        cdef const uint8_t* rest
        if size < 9:
            raise ProtocolError("basic.get-ok is too short")
        if not self.waiting or self.waiting[0][0] != "basic.get":
            raise ProtocolError("basic.get-ok was not asked for")
        self.got = self.target = Batch()
        self.receiver = None
        entry = self.target.begin()
        entry.tag = load64(p)
        entry.redelivered = p[8] & 1
        rest = self.add_names(entry, p + 9, p + size)
        if p + size - rest < 4:
            raise ProtocolError("basic.get-ok is too short")
        self.stage = AWAIT_CONTENT_HEADER
        return 0

    cdef int begin_returned(self, const uint8_t* p, uint32_t size) except -1:
        """basic.return: reply code, reply text, exchange, key."""
        cdef Entry* entry
        if size < 3 or size < 3 + <uint32_t> p[2]:
            raise ProtocolError("basic.return is too short")
        self.target = self.returns
        self.receiver = None
        entry = self.target.begin()
        entry.tag = 0
        entry.redelivered = False
        entry.code = load16(p)
        text = (<char*> p + 3)[:p[2]].decode("utf-8", "replace")
        self.add_names(entry, p + 3 + p[2], p + size)
        self.return_texts.append(text)
        self.stage = AWAIT_CONTENT_HEADER
        return 0

    cdef int content_header(self, const uint8_t* p, uint32_t size) except -1:
        cdef uint64_t body
        if self.stage != AWAIT_CONTENT_HEADER:
            raise ProtocolError(f"a content header on channel {self.number} without its method")
        if size < 14 or load16(p) != 60:
            raise ProtocolError("a content header is malformed")
        body = load64(p + 4)
        if body > self.link.body_max:
            raise ProtocolError(
                f"a message of {body} bytes; this client takes {self.link.body_max}")
        self.target.properties(p + HEADER_FIXED, size - HEADER_FIXED, body)
        if body:
            self.stage = AWAIT_BODY
        else:
            self.finished()
        return 0

    cdef int content_body(self, const uint8_t* p, uint32_t size) except -1:
        if self.stage != AWAIT_BODY:
            raise ProtocolError(f"a body frame on channel {self.number} without its header")
        if size > self.target.missing:
            raise ProtocolError("a message is longer than its header says")
        if size == 0:
            return 0
        self.target.body(p, size)
        if not self.target.is_open:
            self.finished()
        return 0

    cdef int finished(self) except -1:
        """The content under way is whole."""
        cdef ConsumerCore consumer = self.receiver
        self.stage = NO_CONTENT
        if consumer is not None:
            if not consumer.is_dirty:
                consumer.is_dirty = True
                self.link.delivered.append(consumer)
        elif self.target is self.got:
            _, token = self.waiting.popleft()
            self.link.events.append(("reply", token, self.got.message(0)))
            self.got = None
        elif self.target is self.returns:
            self.link.events.append(("returned", self))
        return 0

    def take_returns(self) -> list:
        """The returned messages as (message, reply text) pairs; they are forgotten here."""
        found = list(zip(self.returns.messages(), self.return_texts))
        del self.return_texts[:len(found)]
        self.returns.clear()
        return found

    cdef int confirm(self, const uint8_t* p, uint32_t size, bint ack) except -1:
        if size != 9:
            raise ProtocolError("a confirm is malformed")
        if self.unconfirmed is None:
            raise ProtocolError(f"a confirm on channel {self.number}, which has none")
        self.unconfirmed.settle(load64(p), p[8] & 1, ack)
        if not self.has_confirms:
            self.has_confirms = True
            self.link.confirmed.append(self)
        return 0

    def method(self, str name, dict arguments):
        """A method off the hot path."""
        if name == "channel.close":
            error = ChannelClosed(arguments["reply_code"], arguments["reply_text"],
                                  arguments["class_id"] << 16 | arguments["method_id"])
            self.link.out.append(method_frame(self.number, "channel.close-ok"))
            self.end(error)
        elif name == "channel.close-ok":
            self.end(ChannelClosed(200, "closed by this client"))
        elif name == "channel.flow":
            self.link.out.append(
                method_frame(self.number, "channel.flow-ok", active=arguments["active"]))
        elif name == "basic.cancel":
            tag = arguments["consumer_tag"].encode("utf-8", "surrogateescape")
            for consumer in self.consumers:
                if consumer.tag == tag:
                    self.remove_consumer(consumer)
                    self.link.events.append(("cancelled", consumer))
                    break
        elif self.waiting and replies(self.waiting[0][0], name):
            _, token = self.waiting.popleft()
            if name == "channel.open-ok":
                self.is_open = True
            answer = None if name == "basic.get-empty" else arguments
            self.link.events.append(("reply", token, answer))
        else:
            raise ProtocolError(f"{name} on channel {self.number} was not asked for")

    cdef int end(self, object error) except -1:
        """The channel is closed: nothing more is answered."""
        if self.closed is not None:
            return 0
        self.closed = error
        self.is_open = False
        self.link.channels[self.number] = None
        if self.target is not None:
            self.target.abandon()
        self.stage = NO_CONTENT
        while self.waiting:
            name, token = self.waiting.popleft()
            if name == "channel.close" and error.code == 200:
                self.link.events.append(("reply", token, {}))
            else:
                self.link.events.append(("failed", token, error))
        self.link.events.append(("channel-closed", self, error))
        return 0

    def close(self, token, code=200, text="closed"):
        """channel.close; the token gets its reply."""
        self.request("channel.close", token, reply_code=code, reply_text=text)


def replies(str request, str reply) -> bool:
    """Whether a method is the reply to a request."""
    return reply == request + "-ok" or (request == "basic.get" and reply == "basic.get-empty")


cdef size_t publish_method(uint8_t* p, const uint8_t* exchange, size_t exchange_length,
                           const uint8_t* key, size_t key_length, bint mandatory) except 0:
    """basic.publish with its arguments at p; returns its length. Raises ValueError."""
    if exchange_length > 255 or key_length > 255:
        raise ValueError("the name of an exchange and a routing key have at most 255 bytes")
    store32(p, 60 << 16 | 40)
    store16(p + 4, 0)
    p[6] = <uint8_t> exchange_length
    memcpy(p + 7, exchange, exchange_length)
    p[7 + exchange_length] = <uint8_t> key_length
    memcpy(p + 8 + exchange_length, key, key_length)
    p[8 + exchange_length + key_length] = mandatory
    return 9 + exchange_length + key_length


cdef inline int check_properties(Link link, size_t length) except -1:
    """Raises ValueError for properties that do not fit a frame."""
    if length > properties_most(link):
        raise ValueError(
            f"properties of {length} bytes are longer than a frame of {link.frame_max}")
    return 0


cdef inline uint8_t* frame_head(uint8_t* p, uint8_t kind, uint16_t channel, uint32_t size) noexcept:
    p[0] = kind
    store16(p + 1, channel)
    store32(p + 3, size)
    return p + 7

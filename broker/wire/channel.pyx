# cython: language_level=3
"""A channel: a publish from its first frame to its confirm, a delivery from its queue to its ack.

It is made of parts: what it receives (`upload.pyx`), which way it goes (`route_memo.pyx`), the
publisher's confirms (`confirms.pyx`), what consumers hold (`deliveries.pyx`), and the answers to
its methods (`replies.pyx`). Methods off the hot path are in `broker.wire.commands`.
"""

from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from broker.kernel cimport clock, contracts
from broker.kernel.buffer cimport Buffer, load16, store16, store32, store64
from broker.kernel.contracts cimport Consumer, Exchange, HELD, Queue, REJECTED, Topology
from broker.kernel.large_body cimport body_of, copy_of, LargeBody, set_body
from broker.kernel.ledger cimport Unacked
from broker.kernel.message cimport (
    BODY_IS_REFERENCE, Message, Place, SPECIAL_FLAGS, set_parts,
)
from broker.kernel.reached cimport Reached, is_wide
from broker.kernel.recording import NOT_RECORDING
from broker.kernel.short_copy cimport short_copy
from broker.kernel.steps import UNTIL_WRITTEN
from broker.schema.errors import FrameError, NotImplementedYet, PreconditionFailed
from broker.store.bodies.store cimport BodyStore
from broker.store.commit.persister cimport Persister
from broker.wire.ack_timeouts import AckTimeouts
from broker.wire.confirms cimport Confirms
from broker.wire.deliveries cimport Deliveries, SETTLE_REQUEUE, SETTLED_AT_ONCE
from broker.wire.fan_out cimport FanOut
from broker.wire.output cimport OUT_FULL, PASSED_FROM, Output, OutputOwner, put_body
from broker.wire.publish_run cimport Run
from broker.wire.replies cimport Replies
from broker.wire.route_memo cimport KnownRoutes, Route, RouteMemo
from broker.wire.sizes cimport count_size, count_sizes
from broker.wire.upload cimport Upload

cdef extern from "<string.h>" nogil:
    void* memmem(const void* data, size_t length, const void* needle, size_t needle_length)


cdef enum:
    FRAME_END = 0xCE
    IN_PARTS = 1 << 20           # a body from this length on is written as the client takes it
    QUEUES_WEIGHED = 16          # a publish to this many queues checks the time of the turn
    SETTLED_IN_TURN = 1024       # deliveries that a method settles at once; more are long work
    TRACED_BODY = 64 << 10       # as `broker.settings.bounds.TRACED_BODY_MAX`
    RUN_BODY = 16 << 10          # bodies of a run are shorter
    START_MAX = 11 + 256         # of a basic.deliver up to the consumer's tag


cdef bytes names_of(bytes exchange, bytes routing_key, bint mandatory):
    """What basic.publish would name them with."""
    return (bytes([len(exchange)]) + exchange + bytes([len(routing_key)]) + routing_key
            + (b"\x01" if mandatory else b"\x00"))


cdef Exchange exchange_of(found):
    """Of what `look_up` returns."""
    return (<tuple> found)[0] if type(found) is tuple else (<Route> found).exchange


cdef bint is_special(Message* message) noexcept:
    """Whether the properties need more than a remembered route: reply-to, expiration, user-id, or
    CC and BCC among the headers."""
    cdef uint16_t flags = load16(message.properties)
    cdef const uint8_t* end = message.properties + message.properties_length
    if not flags & SPECIAL_FLAGS:
        return False
    if flags & (SPECIAL_FLAGS & ~(1 << 13)):
        return True
    return (memmem(message.properties, end - message.properties, b"\x02CC", 3) != NULL
            or memmem(message.properties, end - message.properties, b"\x03BCC", 4) != NULL)


cdef bint is_found(found) noexcept:
    """Whether these are queues, and not the steps that find them."""
    return type(found) is tuple or type(found) is Reached


# -- frames of a content ---------------------------------------------------------------------------

cdef inline void put_names(uint8_t* p, const Message* message) noexcept:
    """Exchange and routing key as short strings, with which basic.deliver and basic.return end, and
    the frame's end."""
    p[0] = message.exchange_length
    memcpy(p + 1, message.exchange, message.exchange_length)
    p += 1 + message.exchange_length
    p[0] = message.routing_key_length
    memcpy(p + 1, message.routing_key, message.routing_key_length)
    p[1 + message.routing_key_length] = FRAME_END


cdef inline size_t content_room(Output output, Message* message) noexcept:
    """What `write_content` writes at most."""
    if message.large != NULL or message.body_length >= IN_PARTS:
        return <size_t> 8 + 12 + message.properties_length
    if output.passes(message.body_length):
        return <size_t> 8 + 12 + message.properties_length + 7
    return (<size_t> 8 + 12 + message.properties_length + message.body_length
            + (message.body_length // (output.frame_max - 8) + 1) * 8)


cdef int write_content(Output output, uint16_t number, Message* message) except -1:
    """Content header and body frames on channel `number`, for which there is room."""
    cdef Buffer out = output.out
    cdef uint32_t left = message.body_length
    cdef uint8_t* p = out.data + out.length
    p[0] = 2
    store16(p + 1, number)
    store32(p + 3, 12 + message.properties_length)
    store16(p + 7, 60)
    store16(p + 9, 0)
    store64(p + 11, left)
    memcpy(p + 19, message.properties, message.properties_length)
    p += 19 + message.properties_length
    p[0] = FRAME_END
    p += 1
    if message.large != NULL or left >= IN_PARTS:
        out.length = p - out.data
        return output.add_large(
            <LargeBody> message.large if message.large != NULL else copy_of(message.body, left),
            number)
    if output.passes(left):
        p[0] = 3
        store16(p + 1, number)
        store32(p + 3, left)
        out.length = p + 7 - out.data
        return output.pass_body(message.body, left)
    p = put_body(p, number, message.body, left, output.frame_max - 8)
    out.length = p - out.data
    return 0


cdef inline size_t delivery_size(const Message* message) noexcept nogil:
    """Bytes of a delivery with one body frame at most, behind the consumer's tag."""
    return (<size_t> 9 + 1 + message.exchange_length + 1 + message.routing_key_length + 1
            + 20 + message.properties_length
            + (message.body_length + 8 if message.body_length else 0))


cdef inline uint8_t* put_delivery(uint8_t* p, const uint8_t* start, uint32_t start_length,
                                  uint64_t tag, const Message* message) noexcept nogil:
    """A basic.deliver for the first time, with its content in one body frame at most. `start`: its
    first bytes, up to the consumer's tag. Returns what follows it."""
    short_copy(p, start, start_length)
    store32(p + 3, start_length - 7 + 9 + 1 + message.exchange_length
            + 1 + message.routing_key_length)
    p += start_length
    store64(p, tag)
    p[8] = 0
    p[9] = message.exchange_length
    short_copy(p + 10, message.exchange, message.exchange_length)
    p += 10 + message.exchange_length
    p[0] = message.routing_key_length
    short_copy(p + 1, message.routing_key, message.routing_key_length)
    p += 1 + message.routing_key_length
    p[0] = FRAME_END
    p[1] = 2
    p[2] = start[1]
    p[3] = start[2]
    store32(p + 4, 12 + message.properties_length)
    store32(p + 8, 60 << 16)
    store64(p + 12, message.body_length)
    short_copy(p + 20, message.properties, message.properties_length)
    p += 20 + message.properties_length
    p[0] = FRAME_END
    if not message.body_length:
        return p + 1
    p[1] = 3
    p[2] = start[1]
    p[3] = start[2]
    store32(p + 4, message.body_length)
    short_copy(p + 8, message.body, message.body_length)
    p += 8 + message.body_length
    p[0] = FRAME_END
    return p + 1


cdef class ChannelHost(OutputOwner):
    """What a channel asks of its connection."""

    cpdef tuple resolve(self, channel, bytes exchange, bytes routing_key):
        """The exchange and, where the key alone decides, the queues or what finds very many; they
        stay so until the topology's version rises. Raises AMQPError."""
        raise NotImplementedError

    cpdef special(self, channel, exchange, targets, bytes routing_key, bytes listed,
                  bint mandatory):
        """The queues of a message whose properties (`listed`) matter for its route, after checking
        those, and what replaces them, if anything does. Raises AMQPError."""
        raise NotImplementedError

    cpdef check_properties(self, channel, exchange, bytes listed):
        """Raises what `special` would raise."""
        raise NotImplementedError

    cpdef refused(self, exchange, bytes listed):
        """A queue refused a message with these properties."""
        raise NotImplementedError

    cpdef trace_publish(self, channel, bytes exchange, bytes routing_key, bytes listed, bytes body,
                        queues):
        """The firehose is on: a message was published."""
        raise NotImplementedError

    cpdef trace_delivery(self, channel, bytes exchange, bytes routing_key, bytes listed, bytes body,
                         queue, bint redelivered):
        """The firehose is on: a message goes to a consumer or answers a get."""
        raise NotImplementedError

    cpdef await_collected(self, channel):
        """The disk is behind with a body of this channel, or reads it back: nothing is parsed until
        `collected`."""
        raise NotImplementedError

    cpdef collected(self, channel):
        """The channel's body needs no more waiting."""
        raise NotImplementedError

    cpdef route_collected(self, channel):
        """The body is whole, or it failed: calls `take_collected` of the channel."""
        raise NotImplementedError

    cpdef publish_in_slices(self, steps):
        """A message to very many queues."""
        raise NotImplementedError

    cpdef bint may_wait(self) except -1:
        """Whether long work may wait for the disk: not when the broker stops."""
        raise NotImplementedError

    cpdef settle_in_slices(self, channel, uint64_t last, int how):
        """An ack, nack or reject of very many deliveries, up to the tag `last`."""
        raise NotImplementedError

    cpdef count_work(self, uint64_t more):
        """A method did as much work as `more` others."""
        raise NotImplementedError

    cpdef has_ack_timeout(self, queue):
        """Whether a delivery of the queue may stay unacknowledged for a limited time only."""
        raise NotImplementedError


cdef class Channel(contracts.Channel):
    """One channel of a `connection`, through whose `output` it writes."""

    def __init__(self, ChannelHost connection, Output output, uint16_t number,
                 Persister persister, Topology topology, BodyStore bodies=None,
                 uint64_t max_message_size=128 << 20, uint64_t body_in_memory=1 << 20,
                 uint64_t max_unacked=1000000):
        self.connection = connection
        self.output = output
        self.number = number
        self.persister = persister
        self.topology = topology
        self.bodies = bodies
        self.share_from = bodies.embed_below if bodies is not None else 0xFFFFFFFF
        self.replies = Replies(persister, self.output)
        self.deliveries = Deliveries(self.output, self.replies, max_unacked)
        self.upload = Upload(max_message_size, body_in_memory)
        self.memo = RouteMemo()
        self.recorder = NOT_RECORDING
        self.opened_at = clock.now_ms

    # -- a message comes in ------------------------------------------------------------------------

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
        self.upload.begin(payload + 2, length - 2)
        return 0

    cdef int on_body_part(self, const uint8_t* payload, uint32_t length) except -1:
        """A body frame that does not have the whole body."""
        cdef Upload upload = self.upload
        upload.check_part(length)
        if upload.needs_file():
            upload.file = self.persister.contents.begin(upload.body_length, self.on_collected)
        if upload.add(payload, length):
            return self.content()
        if upload.has_to_wait():
            self.connection.await_collected(self)
            if upload.received == upload.body_length:
                return self.persister.contents.ask(upload.file)
        return 0

    def on_collected(self):
        """The thread that writes collected bodies has done something."""
        cdef Upload upload = self.upload
        if upload.file is not None and (upload.file.error or upload.file.whole):
            self.connection.route_collected(self)
        elif upload.file is None or (
                upload.received < upload.body_length and not upload.file.is_behind):
            self.connection.collected(self)

    def take_collected(self):
        """Routes the message if its body is whole. Raises PreconditionFailed if the disk did not
        take it."""
        if self.upload.take_file():
            try:
                self.content()
            finally:
                self.upload.drop_file()

    cdef int content(self) except -1:
        """A message is whole: routes it, or puts it aside for the transaction's commit."""
        cdef Message message
        cdef bint mandatory = self.upload.view(&message)
        self.published += 1
        self.published_bytes += message.body_length
        count_size(message.body_length)
        if self.transaction is not None:
            self.put_aside(&message, mandatory)
        else:
            self.route(&message, self.upload.method, self.upload.method_length, mandatory)
            if self.fan_out is not None:
                self.connection.publish_in_slices(self.fanned_out())
        self.upload.routed()
        return 0

    # -- transactions ------------------------------------------------------------------------------

    cdef int put_aside(self, Message* message, bint mandatory) except -1:
        """The message is routed at the commit."""
        # Checks the time of the turn: a chunk may hold thousands, of 1 to 2 microseconds each.
        if not self.published & 63:
            self.connection.count_work(0)
        exchange = self.target_of(message)
        self.unrouted += 1
        self.unrouted_bytes += message.body_length
        if load16(message.properties) & SPECIAL_FLAGS:
            self.connection.check_properties(
                self, exchange, message.properties[:message.properties_length])
        self.transaction.publish((
            message.exchange[:message.exchange_length],
            message.routing_key[:message.routing_key_length],
            message.properties[:message.properties_length],
            body_of(message), message.flags, mandatory),
            self.topology.version)
        return 0

    cdef Exchange target_of(self, Message* message):
        """The exchange of the message that was received. Raises AMQPError."""
        cdef const uint8_t* method = self.upload.method
        cdef uint32_t length = self.upload.method_length
        if self.memo.is_known(self.topology.version, method, length):
            return self.memo.route.exchange
        return exchange_of(self.look_up(message, method, length))

    def check_target(self, bytes exchange, bytes routing_key, bytes properties):
        """Raises what publishing there would raise."""
        cdef bytes method = names_of(exchange, routing_key, False)
        found = self.find_route(
            self.topology.version, <const uint8_t*> <char*> method, <uint32_t> len(method))
        if load16(<const uint8_t*> <char*> properties) & SPECIAL_FLAGS:
            self.connection.check_properties(self, exchange_of(found), properties)

    def publish_committed(self, bytes exchange, bytes routing_key, bytes properties, body,
                          int flags, bint mandatory):
        """Routes a message that a transaction had put aside. Returns whether a queue refused it; if
        `is_put_off`, the caller continues with `fanned_out`, which returns that."""
        cdef Message message
        set_parts(&message, exchange, routing_key, properties, b"")
        set_body(&message, body)
        message.flags = <uint8_t> flags
        message.timestamp = clock.now_ms
        method = names_of(exchange, routing_key, mandatory)
        self.unrouted -= 1
        self.unrouted_bytes -= message.body_length
        return bool(REJECTED & self.route(
            &message, <const uint8_t*> <char*> method, <uint32_t> len(method), mandatory))

    # -- routing -----------------------------------------------------------------------------------

    cdef int route(self, Message* message, const uint8_t* method, uint32_t length,
                   bint mandatory) except -1:
        """Gives the message to every queue of its route and notes what its confirm waits for.
        `method` names exchange and routing key. Returns what the queues answered, together."""
        cdef Exchange exchange
        cdef tuple targets
        cdef object found
        cdef bint confirm = self.confirms is not None
        cdef bint is_looked_at
        cdef int result = 0
        cdef int held = 0
        cdef int answer
        cdef Py_ssize_t i
        if not self.memo.is_known(self.topology.version, method, length):
            found = self.look_up(message, method, length)
            if type(found) is tuple:
                exchange, found = found
                return self.put_off(message, exchange, found, mandatory)
        exchange = self.memo.route.exchange
        targets = self.memo.route.targets
        exchange.publish_in += 1
        exchange.bytes_in += message.body_length
        # `targets` is None where routing needs the properties, too. The exchange may then have
        # stored the message's id to drop duplicates, which `count_refused` takes back.
        is_looked_at = targets is None
        if is_looked_at or is_special(message):
            found = self.inspect(message, exchange, targets, mandatory)
            if is_wide(found):
                exchange.publish_in -= 1
                exchange.bytes_in -= message.body_length
                self.put_off(message, exchange, found, mandatory)
                self.fan_out.is_looked_at = is_looked_at
                self.fan_out.is_inspected = True
                return 0
            targets = found
            self.memo.note((exchange, targets), 1)
        else:
            self.memo.count += 1
        if confirm:
            message.origin.channel = self.confirms.serial
            message.origin.tag = self.confirms.sequence + 1
        else:
            message.origin.channel = message.origin.tag = 0
        if (message.body_length >= self.share_from and PyTuple_GET_SIZE(targets) > 1
                or message.large != NULL and self.bodies is not None and targets):
            result = self.publish_shared(message, targets, &held)
        else:
            for i in range(PyTuple_GET_SIZE(targets)):
                answer = (<Queue> PyTuple_GET_ITEM(targets, i)).publish(message, confirm)
                result |= answer
                held += answer == HELD
        if PyTuple_GET_SIZE(targets) >= QUEUES_WEIGHED and self.transaction is None:
            # Checks the time of the turn: a chunk may hold hundreds of such messages.
            self.connection.count_work(0)
        if PyTuple_GET_SIZE(targets) == 0:
            self.unroutable(message, exchange, mandatory)
        else:
            exchange.publish_out += 1
            exchange.bytes_out += message.body_length
            if result & REJECTED:
                self.count_refused(message, exchange, is_looked_at)
                for target in targets:
                    target.note_refused(self.connection)
        if self.recorder.on:
            result |= self.my_recording().record(message, exchange, targets, result)
        if self.traced:
            self.trace_publish(message, targets)
        if confirm:
            self.confirms.publish(held, result)
        return result

    cdef uint64_t run_below(self, const uint8_t* method, uint32_t length) noexcept:
        """Publishes with this `method` may be routed together if their properties need no
        `inspect` and their bodies are shorter than what is returned. 0: they go one by one."""
        cdef tuple targets
        cdef uint64_t below = min(<uint64_t> RUN_BODY, self.upload.size_max + 1)
        cdef Py_ssize_t i
        if not self.memo.is_known(self.topology.version, method, length):
            return 0
        targets = self.memo.route.targets
        if (targets is None or self.transaction is not None or self.traced
                or PyTuple_GET_SIZE(targets) == 0
                or PyTuple_GET_SIZE(targets) >= QUEUES_WEIGHED):
            return 0
        for i in range(PyTuple_GET_SIZE(targets)):
            if not (<Queue> PyTuple_GET_ITEM(targets, i)).takes_runs():
                return 0
        return below if PyTuple_GET_SIZE(targets) == 1 else min(below, self.share_from)

    cdef int route_run(self, Run* run) except -1:
        """`content` and `route` for messages that `run_below` allows."""
        cdef Exchange exchange = self.memo.route.exchange
        cdef tuple targets = self.memo.route.targets
        cdef bint confirm = self.confirms is not None
        cdef int result = 0
        cdef Py_ssize_t i
        self.published += run.count
        self.published_bytes += run.body_bytes
        count_sizes(run.messages, run.count)
        exchange.publish_in += run.count
        exchange.bytes_in += run.body_bytes
        self.memo.count += run.count
        for i in range(PyTuple_GET_SIZE(targets)):
            result |= (<Queue> PyTuple_GET_ITEM(targets, i)).publish_run(
                run.messages, run.count, confirm)
        exchange.publish_out += run.count
        exchange.bytes_out += run.body_bytes
        if self.recorder.on:
            result |= self.my_recording().record_run(
                run.messages, run.count, exchange, targets, result)
        if confirm:
            self.confirms.publish_run(run.count, result)
        return 0

    cdef object look_up(self, Message* message, const uint8_t* method, uint32_t length):
        """The last publish named another exchange or routing key, or something has changed since.
        Returns the route as the memo has it then; or, where the queues are very many or take steps
        to find, `(exchange, queues or steps)`: each channel might hold others of those."""
        cdef uint64_t version = self.topology.version
        self.unrouted += 1
        self.unrouted_bytes += message.body_length
        found = self.find_route(version, method, length)
        self.unrouted -= 1
        self.unrouted_bytes -= message.body_length
        if type(found) is not tuple:
            self.memo.remember(<Route> found, version)
        return found

    cdef object find_route(self, uint64_t version, const uint8_t* method, uint32_t length):
        """What `look_up` returns, for what basic.publish names. Raises AMQPError."""
        cdef KnownRoutes routes = self.known_routes()
        cdef Route route = routes.find(version, method, length)
        cdef const uint8_t* key
        if route is None:
            key = method + 1 + method[0]
            exchange, found = self.connection.resolve(
                self, method[1:1 + method[0]], key[1:1 + key[0]])
            if found is not None and type(found) is not tuple:
                return exchange, found
            route = routes.keep(version, method[:length], exchange, found)
        return (route.exchange, route.targets) if is_wide(route.targets) else route

    cdef KnownRoutes known_routes(self):
        if self.connection.routes is None:
            self.connection.routes = KnownRoutes()
        return self.connection.routes

    cdef object inspect(self, Message* message, Exchange exchange, targets, bint mandatory):
        """Checks the properties of a message and replaces them where that is needed. Returns its
        queues, or the steps that find very many. `targets` are its queues by the routing key
        alone; None if the key does not decide."""
        self.unrouted += 1
        self.unrouted_bytes += message.body_length
        found, self.replaced = self.connection.special(
            self, exchange, targets, message.routing_key[:message.routing_key_length],
            message.properties[:message.properties_length], mandatory)
        self.unrouted -= 1
        self.unrouted_bytes -= message.body_length
        if self.replaced is not None:
            message.properties = <const uint8_t*> <char*> self.replaced
            message.properties_length = <uint32_t> len(self.replaced)
        return found

    # -- very many queues --------------------------------------------------------------------------

    cdef int put_off(self, Message* message, Exchange exchange, found, bint mandatory) except -1:
        """The message goes to very many queues, which may have to be found yet: the caller
        continues with `fanned_out`."""
        self.unrouted += 1
        self.unrouted_bytes += message.body_length
        self.fan_out = FanOut(
            self.connection, exchange, found, mandatory, self.topology.version)
        return self.fan_out.keep(message)

    @property
    def is_put_off(self):
        return self.fan_out is not None

    def fanned_out(self):
        """Does for the message that was put off what `route` does for others, in steps. Returns
        whether a queue refused it. Raises AMQPError."""
        cdef FanOut way = self.fan_out
        cdef Exchange exchange = way.target
        cdef bint confirm = self.confirms is not None
        cdef uint32_t size = way.message.body_length
        self.fan_out = None
        found = way.found
        if not is_found(found):
            found = yield from found
            if (not way.is_inspected and type(found) is tuple
                    and way.version == self.topology.version):
                # A `Reached` has more queues than a tuple is used for: found anew for each message.
                self.known_routes().keep(
                    way.version, names_of(way.exchange, way.routing_key, way.mandatory),
                    exchange, found)
        self.unrouted -= 1
        self.unrouted_bytes -= size
        if not way.is_inspected and is_special(&way.message):
            found = self.inspect(&way.message, exchange, found, way.mandatory)
            way.properties = self.replaced if self.replaced is not None else way.properties
            if not is_found(found):
                found = yield from found
        if confirm:
            way.message.origin.channel = self.confirms.serial
            way.message.origin.tag = self.confirms.sequence + 1
        else:
            way.message.origin.channel = way.message.origin.tag = 0
        exchange.publish_in += 1
        exchange.bytes_in += size
        way.begin(found, self.bodies, self.share_from)
        way.is_kept = self.recorder.on or self.traced
        try:
            while not way.give(confirm):
                yield
                while (self.persister.tail_bytes > self.persister.tail_limit
                       and self.connection.may_wait()):
                    # This message alone may exceed the limit, and waits for the disk.
                    yield UNTIL_WRITTEN
        finally:
            way.end()
        if way.count == 0:
            self.unroutable(&way.message, exchange, way.mandatory)
        else:
            exchange.publish_out += 1
            exchange.bytes_out += size
        if way.result & REJECTED:
            self.count_refused(&way.message, exchange, way.is_looked_at)
        # Noted without its queues: each page that shows routes would go through all of them.
        self.memo.note((exchange, ()), 1)
        if way.is_kept:
            found = way.queues()
            if self.recorder.on:
                way.result |= self.my_recording().record(&way.message, exchange, found, way.result)
            if self.traced:
                self.trace_publish(&way.message, found)
        if confirm:
            self.confirms.publish(way.held, way.result)
        return way.result & REJECTED != 0

    cdef int publish_shared(self, Message* message, tuple targets, int* held) except -1:
        """Stores the body once in the virtual host's body store, and gives each queue a
        reference. A body that is too large to be copied goes there for a single queue, too."""
        cdef bint confirm = self.confirms is not None
        cdef int result = 0
        cdef int answer
        cdef Py_ssize_t i
        self.bodies.share(message)
        try:
            for i in range(PyTuple_GET_SIZE(targets)):
                answer = (<Queue> PyTuple_GET_ITEM(targets, i)).receive(message, confirm)
                result |= answer
                held[0] += answer == HELD
        finally:
            self.bodies.release(message.reference)
            message.flags &= ~BODY_IS_REFERENCE
        return result

    cdef int unroutable(self, Message* message, Exchange exchange, bint mandatory) except -1:
        """No queue is on the route: returns the message (basic.return 312 NO_ROUTE, before its
        confirm), or drops it."""
        cdef Buffer out = self.output.out
        cdef uint32_t payload
        cdef uint8_t* p
        if not mandatory:
            self.dropped += 1
            self.dropped_bytes += message.body_length
            exchange.dropped += 1
            exchange.bytes_dropped += message.body_length
            return 0
        self.returned += 1
        self.returned_bytes += message.body_length
        exchange.returned += 1
        exchange.bytes_returned += message.body_length
        payload = 4 + 2 + 9 + 1 + message.exchange_length + 1 + message.routing_key_length
        p = out.room(payload + 8 + content_room(self.output, message))
        p[0] = 1
        store16(p + 1, self.number)
        store32(p + 3, payload)
        store16(p + 7, 60)
        store16(p + 9, 50)
        store16(p + 11, 312)
        p[13] = 8
        memcpy(p + 14, b"NO_ROUTE", 8)
        put_names(p + 22, message)
        out.length += payload + 8
        write_content(self.output, self.number, message)
        return self.output.touch()

    cdef int count_refused(self, Message* message, Exchange exchange,
                           bint is_looked_at) except -1:
        """A queue of the route refused the message."""
        self.refused += 1
        self.refused_bytes += message.body_length
        exchange.refused += 1
        exchange.bytes_refused += message.body_length
        if is_looked_at:
            self.connection.refused(exchange, message.properties[:message.properties_length])
        return 0

    cdef Recording my_recording(self):
        """A policy of the vhost has its messages kept in a history."""
        if self.recording is None:
            self.recording = self.recorder.begin(self.connection.user, self.connection.name)
        return self.recording

    cdef int trace_publish(self, Message* message, tuple targets) except -1:
        # A body that is collected in a file is not there.
        cdef uint32_t length = min(message.body_length, <uint32_t> TRACED_BODY)
        self.connection.trace_publish(
            self, message.exchange[:message.exchange_length],
            message.routing_key[:message.routing_key_length],
            message.properties[:message.properties_length],
            message.body[:length] if message.body != NULL else b"", targets)
        return 0

    # -- a message goes out ------------------------------------------------------------------------

    cdef bint can_take(self, Consumer consumer) noexcept:
        return not self.output.is_full() and self.deliveries.has_room(consumer)

    cdef int deliver(self, Consumer consumer, Message* message, Place* place) except -1:
        """basic.deliver with its content."""
        cdef Output output = self.output
        cdef Buffer out = output.out
        cdef uint32_t tag_length = <uint32_t> len(consumer.wire_tag)
        cdef uint32_t payload = (4 + tag_length + 9 + 1 + message.exchange_length
                                 + 1 + message.routing_key_length)
        # Memory first: where there is none, nothing was delivered.
        cdef uint8_t* start = out.room(payload + 8 + content_room(output, message))
        cdef uint8_t* p = start + 11 + tag_length
        store64(p, self.deliveries.enter(consumer, place, message.body_length))
        start[0] = 1
        store16(start + 1, self.number)
        store32(start + 3, payload)
        store16(start + 7, 60)
        store16(start + 9, 60)
        memcpy(start + 11, <char*> consumer.wire_tag, tag_length)
        p[8] = <uint8_t> place.redelivered
        put_names(p + 9, message)
        out.length += payload + 8
        write_content(output, self.number, message)
        if self.traced:
            self.trace_delivery(consumer, message, place.redelivered)
        return output.touch()

    cdef int deliver_run(self, Consumer consumer, Message* messages, Place* places,
                         uint32_t count) except -1:
        cdef Output output = self.output
        cdef Buffer out = output.out
        cdef uint8_t[START_MAX] start
        cdef uint32_t start_length = 11 + <uint32_t> len(consumer.wire_tag)
        cdef size_t size = 0
        cdef uint64_t body_bytes = 0
        cdef uint64_t tag
        cdef uint32_t i
        cdef uint8_t* p
        if self.traced:
            return 0
        count = self.deliveries.room_for(consumer, count)
        for i in range(count):
            if (out.length + output.passed + size > OUT_FULL
                    or messages[i].body_length > min(output.frame_max - 8, <uint32_t> PASSED_FROM)):
                count = i
                break
            size += start_length + delivery_size(&messages[i])
            body_bytes += messages[i].body_length
        if count == 0:
            return 0
        # Memory first: where there is none, nothing was delivered.
        p = out.room(size)
        tag = self.deliveries.enter_run(consumer, places, count, body_bytes)
        start[0] = 1
        store16(start + 1, self.number)
        store16(start + 7, 60)
        store16(start + 9, 60)
        memcpy(start + 11, <char*> consumer.wire_tag, start_length - 11)
        for i in range(count):
            p = put_delivery(p, start, start_length, tag + i, &messages[i])
        out.length += size
        output.touch()
        return count

    cdef int trace_delivery(self, Consumer consumer, Message* message, bint redelivered) except -1:
        self.connection.trace_delivery(
            self, message.exchange[:message.exchange_length],
            message.routing_key[:message.routing_key_length],
            message.properties[:message.properties_length],
            message.body[:min(message.body_length, <uint32_t> TRACED_BODY)],
            consumer.queue, redelivered)
        return 0

    def take_got(self, Consumer consumer, tuple place):
        """The answer to a basic.get is written now: its delivery tag, entered in the ledger where
        it wants an ack."""
        tag = self.deliveries.take_got(consumer, place)
        self.watch_acks_of(consumer)
        return tag

    # -- a message is settled ----------------------------------------------------------------------

    cdef int settle(self, uint64_t tag, bint multiple, int how) except -1:
        """basic.ack, nack or reject of one delivery, or of all up to it; a transaction puts it
        aside."""
        cdef uint64_t newest = self.deliveries.ledger.next - 1
        cdef Unacked* entry
        if multiple and tag == 0:
            if self.transaction is not None:
                self.transaction.settle_all(newest, how)
                return 0
            return self.settle_up_to(newest, how)
        entry = self.deliveries.ledger.find(tag)
        if entry == NULL:
            raise PreconditionFailed(f"unknown delivery tag {tag}")
        if self.transaction is not None:
            self.transaction.settle(tag, multiple, how)
            return 0
        if multiple:
            return self.settle_up_to(tag, how)
        if how == SETTLE_REQUEUE:
            self.deliveries.deliver_before_requeue(tag, tag)
            entry = self.deliveries.ledger.find(tag)
        return self.deliveries.settle_entry(entry, how)

    cdef int settle_up_to(self, uint64_t last, int how) except -1:
        """Settles all up to a delivery: at once, or in slices where there are very many. Some
        hundred take as long as a method off the hot path."""
        cdef Deliveries deliveries = self.deliveries
        cdef uint64_t count = deliveries.ledger.position_of(last + 1) - deliveries.ledger.first
        if count > SETTLED_IN_TURN:
            self.connection.settle_in_slices(self, last, how)
            return 0
        if how == SETTLE_REQUEUE:
            deliveries.deliver_before_requeue(0, last)
        deliveries.settle_up_to(last, how)
        if count >= SETTLED_AT_ONCE:
            self.connection.count_work(1)
        return 0

    def settle_slice(self, uint64_t since, uint64_t last, int how):
        """Settles some hundred of the deliveries with tags from `since` to `last`, except those
        that the transaction settles. Returns the tag to continue from, 0 at the end."""
        return self.deliveries.settle_slice(since, last, how, self.transaction)

    def settle_committed(self, uint64_t tag, bint multiple, int how):
        """Settles what a transaction had put aside, some hundred deliveries at a time. Returns
        whether there are more."""
        return self.deliveries.settle_committed(tag, multiple, how, self.transaction)

    # -- what methods change -----------------------------------------------------------------------

    def select_confirms(self):
        """confirm.select."""
        if self.confirms is None:
            self.confirms = Confirms(self.persister, self.output, self.number)

    def add_consumer(self, Consumer consumer):
        """basic.consume: a consumer of this channel begins."""
        self.deliveries.add_consumer(consumer)
        self.watch_acks_of(consumer)

    def watch_acks(self):
        """The broker's consumer timeout changed: looks through all consumers."""
        if not self.closing:
            if self.ack_timeouts is None:
                self.ack_timeouts = AckTimeouts(self, self.connection)
            self.ack_timeouts.watch()

    def watch_acks_of(self, Consumer consumer):
        """A consumer came, a message was got, or the consumer timeout of its queue changed. No look
        at the others: there may be many, and they may come or change one by one."""
        if consumer.no_ack:
            return
        if self.ack_timeouts is not None:
            self.ack_timeouts.add(consumer)
        elif self.connection.has_ack_timeout(consumer.queue):
            self.watch_acks()

    def resume(self):
        """Deliveries and gets may continue: the socket took its data."""
        self.deliveries.touch_queues()
        if self.gets is not None:
            self.gets.go_on()

    def next_turn(self, callback):
        """Calls `callback()` after the connections that already wait for their next turn."""
        self.output.turn.wait_in_line(callback)

    @property
    def is_full(self):
        """Whether the connection has too much to write: basic.get waits."""
        return self.output.is_full()

    # -- what others see ---------------------------------------------------------------------------

    @property
    def confirm(self):
        return self.confirms is not None

    @property
    def prefetch_count(self):
        return self.deliveries.prefetch_count

    @property
    def global_prefetch_count(self):
        return self.deliveries.global_prefetch_count

    @property
    def messages_unacknowledged(self):
        return self.deliveries.ledger.count

    @property
    def messages_unconfirmed(self):
        return self.confirms.unconfirmed if self.confirms is not None else 0

    @property
    def oldest_unconfirmed(self):
        """The tag of the oldest unconfirmed message; 0 if there is none, or it is not known."""
        return self.confirms.oldest if self.confirms is not None else 0

    @property
    def nacked(self):
        return self.confirms.nacked if self.confirms is not None else 0

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
        cdef Deliveries deliveries = self.deliveries
        return {
            "publish": self.published,
            "confirm": self.confirms.acked if self.confirms is not None else 0,
            "return_unroutable": self.returned,
            "drop_unroutable": self.dropped,
            "deliver": deliveries.delivered,
            "deliver_no_ack": deliveries.delivered_no_ack,
            "get": deliveries.got,
            "get_no_ack": deliveries.got_no_ack,
            "get_empty": deliveries.got_empty,
            "ack": deliveries.acked,
            "redeliver": deliveries.redelivered,
            "reject": deliveries.rejected,
        }

    def published_to(self) -> dict:
        """How many messages were published by which route: `(exchange, queues)`. Of a channel that
        publishes to very many, the recent routes."""
        return self.memo.counts()

    # -- end ---------------------------------------------------------------------------------------

    def begin_closing(self):
        """channel.close is on its way: what is safe is confirmed before it; what comes but close-ok
        is ignored, and no more confirms are sent."""
        self.closing = True
        if self.confirms is not None:
            self.confirms.stop()

    cdef bint has_nothing(self) noexcept:
        """Whether nothing has to be given back when it ends: no consumer, no delivery, no
        transaction."""
        return (self.transaction is None and len(self.deliveries.consumers) == 0
                and self.deliveries.ledger.count == 0)

    def end(self):
        """The channel ends: an unfinished message is dropped, and what waits is not served any
        more. Its consumers and unacknowledged deliveries are the caller's to end."""
        if self.confirms is not None:
            self.confirms.end()
        if self.ack_timeouts is not None:
            self.ack_timeouts.stop()
            self.ack_timeouts = None
        if self.gets is not None:
            self.gets.end()
            self.gets = None
        self.deliveries.end()
        self.upload.end()
        self.memo.end()

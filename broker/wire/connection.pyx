# cython: language_level=3
"""A connection from its protocol header to its end: handshake, tuning, channels, close (AMQP 0-9-1
section 2.2, class connection).

`FrameParser` cuts frames; a `Connection` is what they mean. Whatever needs the loop, passwords or
other vhosts is asked of the host, which is the broker (`broker.wire.host`).
"""

import functools
import logging
import sys

from libc.stdint cimport int64_t, uint32_t, uint64_t

from broker.fields import properties
from broker.fields.codec import Reader, encode_table, text as text_of
from broker.kernel.steps import first_step
from broker.kernel.through import Through
from broker.schema.arguments import memory_of
from broker.schema.errors import ChannelFault, CommandInvalid, NotAllowed
from broker.schema.shovel_keys import ON_BEHALF_OF
from broker.wire import channel as channel_module
from broker.wire.ack_timeouts import timeout_of
from broker.wire.argument_lists import frame
from broker.wire.channel cimport Channel
from broker.wire.clients cimport Clients
from broker.wire.commands import COMMANDS, added_queues, publishing, unknown
from broker.wire.frame_parser cimport CLOSED, CLOSING, FrameParser, HANDSHAKE, RUNNING
from broker.wire.handshake import Handshake
from broker.wire.long_work import LongWork
from broker.wire.method_frames cimport bare_frame
from broker.wire.method_frames import method_frame
from broker.wire.settling import HeldBack, given_back, settled

log = logging.getLogger("leveret.connection")

HEARTBEAT = frame(8, 0, b"")
# A refused stranger waits this long for the end, so that guessing passwords is slow.
SILENT_CLOSE_S = 3.0
FEW_BEATS = 64
"""Octets in half an interval: no more than heartbeats, or as little as them."""
CLIENT_NAME_MAX = 64
ENDED_AT_ONCE = 32
"""Channels that have nothing to give back and end in one step, 2 microseconds each."""
KEYS_WEIGHED = 16
"""Routing keys of a message that count as much as one method off the hot path."""

cdef bytes OPEN_OK = bare_frame(0, "connection.open-ok")
cdef bytes CLOSE_OK = bare_frame(0, "connection.close-ok")


cdef class Connection(FrameParser):
    """One client. `peer` and `local` are (address, port); `listener` is the name of the one that
    accepted it."""

    cdef object _host
    cdef Clients _clients            # the host's
    cdef object _rights              # None until they were asked for
    cdef object _timer
    cdef dict _capabilities
    cdef bytes _client_properties
    cdef object _channels_limit      # of the user, as of that version of the users
    cdef object _limits_version
    cdef int _silent_beats
    cdef uint64_t _octets_before     # received up to the last heartbeat that was sent
    cdef bint _is_over               # the host has counted its end
    cdef uint32_t _specials
    cdef public object auth_mechanism
    # The client library, as it calls itself.
    cdef public object client
    cdef public object client_version
    cdef public object close_reason
    cdef public object connected_at_ms
    # Bytes of memory, about.
    cdef public object consumer_arguments
    # Since they were counted last: never fewer than there are.
    cdef public object consumers_begun
    # Kept true by the vhost: such a queue may be deleted and its name used by another client.
    cdef public object exclusive_queues
    cdef public object handshake
    cdef public object heartbeat
    cdef public object id
    cdef public object listener
    cdef public object local
    cdef public object long_work     # a LongWork, or None
    cdef public object name
    cdef readonly bint on_behalf     # the client says that it connects on behalf of a user
    cdef public object peer
    cdef public object protocol
    cdef public object proxied
    cdef public object tls
    cdef public object user
    cdef public object user_provided_name
    cdef public object vhost

    def __init__(self, host, turn, transport, int fd, *, id, tuple peer, tuple local, str listener,
                 int64_t connected_at_ms, tls=None, bint proxied=False):
        config = host.config
        super().__init__(
            turn, transport, fd, budget=config.pre_login_bytes, unsent_max=config.unsent_max,
            unanswered_max=config.unanswered_max,
        )
        self._host = host
        self._clients = host.clients
        self._capabilities = {}
        self._client_properties = b""
        self.handshake = Handshake(self, host)
        self._silent_beats = 0
        self._specials = 0
        self._timer = host.later(host.config.handshake_timeout, self._handshake_timed_out)
        self.auth_mechanism = ""
        self.client = ""
        self.client_version = ""
        self.close_reason = ""
        self.connected_at_ms = connected_at_ms
        self.consumer_arguments = 0
        self.consumers_begun = 0
        self.exclusive_queues = set()
        self.heartbeat = 0
        self.id = id
        self.listener = listener
        self.local = local
        self.long_work = None
        self.peer = peer
        self.name = f"{_endpoint(peer)} -> {_endpoint(local)}"
        self.protocol = "AMQP 0-9-1"
        self.proxied = proxied
        self.tls = tls
        self.user = ""
        self.user_provided_name = ""
        self.vhost = None

    # -- what others see ---------------------------------------------------------------------------

    @property
    def client_properties(self):
        return Reader(self._client_properties).table() if self._client_properties else {}

    @property
    def state(self):
        if not self.is_open:
            return (
                "closing"
                if self.phase == CLOSING
                else "closed"
                if self.phase == CLOSED
                else "starting"
            )
        if self.blocked:
            return "blocked"
        return "blocking" if self.alarmed else "flow" if self.paused else "running"

    cpdef label(self):
        return self.name

    @property
    def host(self):
        return self._host

    @property
    def peer_host(self):
        """The peer's address as lines of the log name it, by which they are limited."""
        return _host(self.peer[0])

    @property
    def rights(self):
        """What the user may do in the vhost."""
        if self._rights is None:
            self._rights = self._host.access.rights(self.user, self.vhost.name)
        return self._rights

    def check(self, kind, resource_kind, name):
        """Raises AccessRefused unless the user may `configure`, `write` or `read` the resource."""
        self.rights.check(kind, resource_kind, name)

    def introduce(self, client_properties):
        """What the client says of itself."""
        capabilities = client_properties.get("capabilities")
        if isinstance(capabilities, dict):
            self._capabilities = {
                name: True for name, value in capabilities.items() if value is True
            }
        # Kept as bytes: decoded they would take several times the room in every idle connection.
        self._client_properties = encode_table(client_properties)
        self.client = _shown(client_properties.get("product"))
        self.client_version = _shown(client_properties.get("version"))
        self.on_behalf = ON_BEHALF_OF in client_properties
        name = client_properties.get("connection_name")
        self.user_provided_name = name if isinstance(name, str) else ""

    def can(self, capability):
        """Whether the client announced a capability."""
        return self._capabilities.get(capability) is True

    # -- handshake ---------------------------------------------------------------------------------

    cpdef on_protocol_header(self, bytes header):
        self.handshake.on_protocol_header(header)

    cpdef on_method(self, channel, int number, str name, dict arguments):
        """Carries out a decoded method. Raises AMQPError."""
        if channel is not None:
            if name == "channel.close" and self._closes_at_once(channel):
                return
            command = COMMANDS.get(name)
            if command is None:
                raise unknown(name)
            command(self, channel, **arguments)
        elif self.phase == HANDSHAKE:
            if name == "connection.close":
                self.output.send(CLOSE_OK)
                self.finish()
            else:
                self.handshake.on_method(name, arguments)
        elif name == "channel.open":
            self.open_channel(number)
            self.output.send(bare_frame(number, "channel.open-ok"))
        elif name == "connection.close":
            self.close_reason = arguments["reply_text"]
            since = self.vhost.slices.begun
            self.phase = CLOSING
            self._allow_rest()
            self.end_channels(False)
            if not self.after_work(functools.partial(self._answer_close, since)):
                self._answer_close(since)
        elif name == "connection.update-secret":
            # A user with a password has nothing to renew; clients send it anyway.
            self.output.send(bare_frame(0, "connection.update-secret-ok"))
        elif name == "connection.close-ok":
            raise CommandInvalid("connection.close-ok without a connection.close")
        else:
            raise ChannelFault("unexpected method in connection state running")

    cdef bint _closes_at_once(self, Channel channel) except -1:
        """channel.close of a channel that has nothing, and whose replies wait for nothing: then
        this is all there is to do."""
        if (channel.closing or not channel.has_nothing() or channel.replies.held is not None
                or channel.replies.acks_unwritten):
            return False
        channel.begin_closing()
        channel.end()
        self._host.channel_closed(channel)
        self.output.send(bare_frame(channel.number, "channel.close-ok"))
        self.remove_channel(channel)
        self._clients.changed()
        return True

    cpdef fail_handshake(self, error, int class_id, int method_id):
        """An error before the connection is open."""
        self.handshake.fail(error, class_id, method_id)

    def logged_in(self, user):
        """The host's answer to `login`."""
        if self.phase == HANDSHAKE:
            self.handshake.logged_in(user)
            self.go_on()

    def login_refused(self, reason):
        """The host's answer to `login`."""
        if self.phase == HANDSHAKE:
            self.handshake.login_refused(reason)
            self.go_on()

    def begin(self, vhost):
        """The handshake is over: the connection is open in its vhost."""
        self.vhost = vhost
        self.handshake = None
        self._timer.cancel()
        self.phase = RUNNING
        self.output.send(OPEN_OK)
        self._octets_before = self.recv_oct
        if self.heartbeat:
            self._timer = self._host.later(self.heartbeat / 2, self._beat)
        self._host.opened(self)
        self._clients.changed()

    def _handshake_timed_out(self):
        if self.phase < RUNNING:
            log.warning("connection %s: no connection.open within the handshake's time", self.name)
            self.drop()

    def close_silently(self):
        """Ends the connection without a word, later: a refused stranger has to wait."""
        self.phase = CLOSED
        self._allow_rest()
        self._timer.cancel()
        self._timer = self._host.later(SILENT_CLOSE_S, self.drop)

    def out_and_close(self, data):
        """Says one last thing."""
        self.send(data)
        self.finish()

    # -- heartbeats --------------------------------------------------------------------------------

    def _beat(self):
        """Every half interval: sends a heartbeat, and ends a connection that was silent for two
        intervals."""
        if self.phase == RUNNING and self.recv_oct - self._octets_before <= FEW_BEATS:
            self._listen_quietly()
        if self.phase != RUNNING:
            return
        self._octets_before = self.recv_oct
        if (
            self.heard
            or self.paused
            or self.blocked
            or self.is_unread
            or self.collecting is not None
            or self.long_work is not None
        ):
            self.heard = False
            self._silent_beats = 0
        else:
            self._silent_beats += 1
            if self._silent_beats >= 5:
                log.warning(
                    "connection %s: missed heartbeats from the client, timeout: %ds",
                    self.name,
                    self.heartbeat,
                )
                self.drop()
                return
        # Sent whatever else was: some clients give up one interval after the last frame they got,
        # and eight bytes cost less than knowing.
        self.send(HEARTBEAT)
        self._timer = self._host.later(self.heartbeat / 2, self._beat)

    def _listen_quietly(self):
        """Nothing but heartbeats has come for half an interval. Where the kernel can keep them, it
        does, and they are looked for here."""
        listen = getattr(self.transport, "listen_quietly", None)
        if listen is not None:
            listen()

    # -- alarms ------------------------------------------------------------------------------------

    @property
    def publishes(self):
        """Whether a message came on one of its channels."""
        return any(channel.published for channel in self.channels.values())

    cpdef block(self):
        """A publish came during an alarm: it waits, and the connection is not read any more."""
        if self.blocked:
            return
        self.blocked = True
        self.transport.pause_reading()
        reason = self._host.alarm_reason
        log.warning("connection %s is blocked: %s", self.name, reason)
        if self.can("connection.blocked"):
            self.send(method_frame(0, "connection.blocked", reason=reason))

    def alarm_set(self):
        """From now on a publish waits. One that is not read already, because unwritten messages
        fill their memory, waits too: nothing else would tell its client."""
        self.set_alarmed(True)
        if self.paused and not self.blocked and self.phase == RUNNING:
            self.block()

    def alarm_over(self):
        """The last alarm is cleared: publishing continues where it stopped."""
        self.set_alarmed(False)
        if self.blocked:
            if self.phase == RUNNING and self.can("connection.blocked"):
                self.send(bare_frame(0, "connection.unblocked"))
            self._unblock()

    def _unblock(self):
        self.blocked = False
        # Its heartbeats are still in the socket.
        self.heard = True
        self.read_on()
        self.go_on()

    cpdef stop_reading(self):
        self.transport.pause_reading()

    cpdef read_on(self):
        """Reads the transport again, if nothing else is against it."""
        if not (
            self.paused
            or self.blocked
            or self.yielding
            or self.is_unread
            or self.collecting is not None
            or self.long_work is not None
        ):
            self.transport.resume_reading()

    # -- channels ----------------------------------------------------------------------------------

    def open_channel(self, int number):
        """Raises NotAllowed at the limits."""
        cdef Channel channel
        cdef int there = self.channel_count
        if there >= self.channel_max:
            raise NotAllowed(
                f"number of channels opened ({there}) has reached the negotiated "
                f"channel_max ({self.channel_max})"
            )
        limit = self._channels_allowed()
        if limit is not None and self._host.channels_of(self.user) >= limit:
            raise NotAllowed(
                f"number of channels opened for user '{self.user}' has reached the maximum "
                f"allowed user limit of ({limit})"
            )
        config = self._host.config
        # Arguments by name would be put into a dict first.
        channel = channel_module.Channel(
            self,
            self.output,
            number,
            self._host.persister,
            self._host.topology,
            self.vhost.bodies,
            config.max_message_size,
            config.body_in_memory,
            config.max_unacked,
        )
        channel.traced = self.vhost.tracer.on
        channel.recorder = self.vhost.recorder
        self.put_channel(channel)
        self._host.channel_opened(channel)
        self._clients.changed()
        return channel

    cdef object _channels_allowed(self):
        """The limit of the user, as of the newest version of the users; None: there is none."""
        access = self._host.access
        if self._limits_version != access.version:
            self._channels_limit = access.user_limit(self.user, "max-channels")
            self._limits_version = access.version
        return self._channels_limit

    cpdef has_ack_timeout(self, queue):
        """Whether a delivery of the queue may stay unacknowledged for a limited time only."""
        return timeout_of(queue, self._host.config.consumer_timeout) > 0

    cpdef after_work(self, callback):
        """Whether long work is under way; `callback()` is called behind it then. When the broker
        stops, it is over at once."""
        work = self.long_work
        if work is not None and self._host.stopping:
            work.complete()
            work = self.long_work
        if work is None:
            return False
        work.then(callback)
        return True

    cpdef settle_in_slices(self, channel, uint64_t last, int how):
        """An ack, nack or reject of very many deliveries, up to the tag `last`."""
        LongWork(self, settled(channel, last, how)).begin()

    cpdef end_channel(self, channel, then):
        """The channel's consumers go, its unacked messages go back, unfinished content never
        happened; `then()` is called when that is done."""
        cdef Channel ending = channel
        if ending.has_nothing():
            ending.end()
            self._host.channel_closed(ending)
            then()
        else:
            LongWork(self, self._steps_to(channel, then)).begin()

    def _steps_to(self, channel, then):
        yield from self._ended([channel])
        then()

    def _ended(self, channels):
        """Ends channels, a consumer or some unacked messages at a step."""
        held = HeldBack()
        try:
            for channel in channels:
                if channel.transaction is not None:
                    self.vhost.slices.begin(channel.transaction.take().emptied())
                channel.end()
                # Before its consumers leave: the next active one waits for what comes back.
                held.add(consumer.queue for consumer in channel.deliveries.holders())
                for consumer in Through(channel.deliveries.consumers.values()):
                    self.leave_consumer(channel, consumer)
                    consumer.queue.remove_consumer(consumer)
                    yield
                yield from given_back(channel, channel.deliveries.next_tag - 1)
                self._host.channel_closed(channel)
                yield
        finally:
            held.let_go()

    def end_queues(self):
        """Exclusive queues live as long as their connection."""
        if self.exclusive_queues:
            self.vhost.delete_exclusive(self)

    cpdef end_channels(self, bint are_silent=True):
        """Ends all channels, behind what `after_work` waits for if there is much to do; unless
        `are_silent`, their replies that are held still go out."""
        cdef Channel channel
        cdef list channels = self.open_channels()
        cdef list ending
        cdef bint is_long = len(channels) > ENDED_AT_ONCE
        if not channels:
            return
        ending = self.stop_deliveries(are_silent)
        for channel in ending:
            is_long = is_long or not channel.has_nothing()
        if is_long:
            # Lists would be walked over by the garbage collector: hundreds may leave at a time.
            LongWork(self, self._forgotten(Through(channels), Through(ending))).begin()
            return
        for channel in ending:
            channel.end()
            self._host.channel_closed(channel)
        for channel in channels:
            self.drop_channel(channel)

    def _forgotten(self, open_channels, ending):
        yield from self._ended(ending)
        for channel in open_channels:
            self.drop_channel(channel)
            yield

    def drop_channel(self, channel):
        self.remove_channel(channel)
        self._clients.changed()

    def enter_consumer(self, channel, consumer):
        """The channel has one more consumer."""
        channel.add_consumer(consumer)
        self.consumer_arguments += memory_of(consumer.arguments)
        self._clients.changed()

    def leave_consumer(self, channel, consumer):
        """The channel has it no more; its queue forgets it in the same turn."""
        channel.deliveries.remove_consumer(consumer)
        self.consumer_arguments -= memory_of(consumer.arguments)
        self._clients.changed()

    def cancel_consumer(self, consumer):
        """Ends a consumer from our side: tells the client, if it said that it understands."""
        channel = consumer.channel
        self.leave_consumer(channel, consumer)
        consumer.stop()
        if self.can("consumer_cancel_notify") and not channel.closing:
            channel.replies.send(
                method_frame(
                    channel.number, "basic.cancel", consumer_tag=consumer.tag, no_wait=True
                )
            )

    # -- tracing -----------------------------------------------------------------------------------

    cpdef trace_publish(self, channel, bytes exchange, bytes routing_key, bytes listed, bytes body,
                        queues):
        """The firehose is on: a message was published."""
        who = (self.name, channel.number, self.user)
        self.vhost.tracer.published(
            who, text_of(exchange), text_of(routing_key), listed, body, queues)

    cpdef trace_delivery(self, channel, bytes exchange, bytes routing_key, bytes listed, bytes body,
                         queue, bint redelivered):
        """The firehose is on: a message goes to a consumer or answers a get."""
        who = (self.name, channel.number, self.user)
        self.vhost.tracer.delivered(
            who, text_of(exchange), text_of(routing_key), listed, body, queue.name, redelivered
        )

    # -- routing -----------------------------------------------------------------------------------

    cpdef tuple resolve(self, channel, bytes exchange_name, bytes routing_key):
        """The exchange and, where the key alone decides, the queues, or what finds very many.
        Raises AccessRefused or NotFound.

        Holds until the topology's version rises.
        """
        name = text_of(exchange_name)
        key = text_of(routing_key)
        exchange = publishing.check_target(self.rights, self.vhost, name, key)
        added = added_queues.of_key(key) if not name else None
        targets = (
            added.targets(self._host, self.vhost, key)
            if added is not None
            else first_step(self.vhost.routes.routing(exchange, [key], {}))
            if self.vhost.routes.is_by_key(exchange)
            else None
        )
        if self.long_work is None:
            # A key that is not remembered may take a hundred times as long as one that is.
            self.count_work(0)
        return exchange, targets

    cpdef publish_in_slices(self, steps):
        """A message to very many queues."""
        # A body that is collected may be whole while the channels of a closing connection end.
        if not self.after_work(functools.partial(self.publish_in_slices, steps)):
            LongWork(self, steps).begin()

    cpdef bint may_wait(self) except -1:
        """Whether long work may wait for the disk: not when the broker stops."""
        return not self._host.stopping

    cpdef special(self, channel, exchange, targets, bytes routing_key, bytes listed,
                  bint mandatory):
        """The queues of a message whose properties matter for its route, or what finds very many,
        after checking those, and what replaces the properties, if anything does. Raises
        PreconditionFailed or AccessRefused."""
        self._count_special()
        found = properties.decode(listed)
        most = self._host.config.routing_keys_max
        key = text_of(routing_key)
        keys = publishing.check_properties(self.rights, channel, exchange, key, found, most)
        if len(keys) >= KEYS_WEIGHED and self.long_work is None:
            self.count_work(len(keys) // KEYS_WEIGHED)
        headers = found.get("headers", {})
        held = exchange.holds(headers)
        if held and mandatory:
            due = {**headers, "x-delay": 0}
            if not self.vhost.routes.route(exchange, keys, due, found):
                return (), None
        changed = dict(found)
        if "BCC" in headers and not held:
            changed["headers"] = {k: v for k, v in headers.items() if k != "BCC"}
        added = added_queues.of_name(found.get("reply_to", ""))
        if added is not None:
            changed["reply_to"] = added.reply_name(channel)
        replaced = properties.encode(changed) if changed != found else None
        if targets is not None and len(keys) == 1:
            return targets, replaced
        replies = () if exchange.name else self._replies(keys)
        way = first_step(self.vhost.routes.publishing(exchange, keys, found, listed))
        return ((*replies, *way) if replies and isinstance(way, tuple) else way), replaced

    cdef tuple _replies(self, list keys):
        """The reply queues among several keys of a message to the default exchange."""
        cdef list found = []
        # Each gets it once, however often it is named.
        for key in dict.fromkeys(keys):
            added = added_queues.of_key(key)
            if added is not None:
                found += added.targets(self._host, self.vhost, key)
        return tuple(found)

    cpdef check_properties(self, channel, exchange, bytes listed):
        """Raises what `special` would raise."""
        self._count_special()
        found, most = properties.decode(listed), self._host.config.routing_keys_max
        publishing.check_properties(self.rights, channel, exchange, "", found, most)

    cdef int _count_special(self) except -1:
        """Decoding properties takes 3 to 10 microseconds: eight weigh as much as a declare. A chunk
        of small publishes has thousands."""
        self._specials += 1
        if not self._specials & 7 and self.long_work is None:
            self.count_work(1)

    cpdef refused(self, exchange, bytes listed):
        """A queue refused a publish: when it is sent again, that is no duplicate."""
        if exchange.duplicates is not None:
            exchange.duplicates.forget(listed)

    def _answer_close(self, since):
        """The channels have ended. The connection's queues are gone, and the acks before it
        written, before the client may believe it."""
        self.end_queues()
        self.vhost.slices.over(self._close_when_written, since)

    def _close_when_written(self):
        persister = self._host.persister
        if persister.has_written_all:
            self._close_ok()
        else:
            persister.after_round(self._close_ok, False)

    def _close_ok(self):
        if self.phase == CLOSING:
            # Nothing is read behind it.
            self.output.write_confirms()
            self.output.send(CLOSE_OK)
            self.finish()

    # -- end ---------------------------------------------------------------------------------------

    def close(self, code=320, text="Closed via management plugin"):
        """Ends the connection with a reason, as an operator does."""
        if self.after_work(functools.partial(self.close, code, text)):
            return
        if self.phase == RUNNING:
            self.close_reason = text
            self.close_with(code, f"CONNECTION_FORCED - {text}", 0, 0)
        elif self.phase < RUNNING:
            self.drop()

    cpdef await_close_ok(self, bint lost_sync):
        """connection.close is sent: the client has a bounded time for its close-ok. Where that
        cannot be found any more, the end comes by itself."""
        self._allow_rest()
        self._timer.cancel()
        if lost_sync:
            self._timer = self._host.later(SILENT_CLOSE_S, self.finish)
        else:
            self._timer = self._host.later(self._patience_s, self.drop)
        if not self.after_work(self.end_queues):
            self.end_queues()
        if self.blocked:
            # Its close-ok lies behind what it published, all of which is ignored now.
            self._unblock()

    cpdef finish(self):
        """All is sent: the connection is over, and its transport waits for the client to
        close, for a bounded time. Frames that are still under way would meet a closed socket
        otherwise, and its reset would take the last answers from the client."""
        if self.after_work(self.finish):
            return
        self._timer.cancel()
        self.end_channels()
        if not self.after_work(self._finish):
            self._finish()

    def _finish(self):
        self.output.end_writing()
        self.set_closed()
        self._allow_rest()
        self.end_queues()
        self.paused = self.blocked = False
        self._timer = self._host.later(self._patience_s, self.drop)
        self._is_over = True
        self._host.closed(self)
        self._clients.changed()
        self._host.leaving.add(self)
        self.transport.resume_reading()

    @property
    def _patience_s(self):
        """How long a client may take to answer connection.close, or to close its transport."""
        config = self._host.config
        return float(config.close_timeout if self.user else config.handshake_timeout)

    cdef int _allow_rest(self) except -1:
        """Sets how much of what the client still sends is thrown away."""
        config = self._host.config
        self.allow(config.close_discard_max if self.user else config.pre_login_bytes)

    cpdef drop(self):
        """Ends the transport without another word."""
        self.phase = CLOSED
        self.transport.abort()

    def lost(self, reason=""):
        """The transport is gone. Long work under way is completed in its slices first. The end of
        very many at the same moment takes several turns."""
        self._timer.cancel()
        self.set_closed()
        if self._host.stopping:
            self._lost(reason)
        else:
            self.when_there_is_time(functools.partial(self._lost, reason))

    def _lost(self, reason):
        if self.after_work(functools.partial(self._lost, reason)):
            return
        if self.handshake is not None:
            self.handshake.end()
            self.handshake = None     # it refers to us
        if not self.close_reason:
            self.close_reason = reason
        self.end_channels()
        if not self.after_work(self._gone):
            self._gone()

    def _gone(self):
        """The channels have ended, and there is no client to answer."""
        self.end_queues()
        # Exclusive queues are in it, and they have this connection.
        if self.routes is not None:
            self.routes.clear()
        if self._is_over:
            self._host.leaving.discard(self)
        else:
            self._host.closed(self)
            self._clients.changed()


cdef str _shown(told):
    """What a client library says of itself: at most so much, kept once for all its connections."""
    return sys.intern(told[:CLIENT_NAME_MAX]) if isinstance(told, str) else ""


cdef str _host(str address):
    return f"[{address}]" if ":" in address else address


cdef str _endpoint(tuple where):
    address, port = where
    return f"{_host(address)}:{port}"

"""A connection from its protocol header to its end: handshake, tuning, channels, close (AMQP 0-9-1
section 2.2, class connection).

`FrameParser` cuts frames; a `Connection` is what they mean. Whatever needs the loop, passwords or
other vhosts is asked of the host, which is the broker (`broker.wire.host`).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any

from broker.fields import properties
from broker.fields.codec import Reader, encode_table, text
from broker.kernel.contracts import Consumer, Exchange
from broker.kernel.steps import Found, Steps, first_step
from broker.schema.arguments import memory_of
from broker.schema.errors import (
    AMQPError,
    ChannelFault,
    CommandInvalid,
    NotAllowed,
)
from broker.wire import commands
from broker.wire.ack_timeouts import timeout_of
from broker.wire.argument_lists import frame
from broker.wire.channel import Channel
from broker.wire.commands import added_queues, publishing
from broker.wire.frame_parser import FrameParser
from broker.wire.handshake import Handshake
from broker.wire.host import Host
from broker.wire.long_work import LongWork
from broker.wire.methods import method_frame
from broker.wire.settling import HeldBack, given_back, settled

log = logging.getLogger("leveret.connection")

HEARTBEAT = frame(8, 0, b"")
# A refused stranger waits this long for the end, so that guessing passwords is slow.
SILENT_CLOSE_S = 3.0
ROUTES_MAX = 1024
ROUTED_QUEUES_MAX = 131_072
"""Queues of all routes that a connection remembers, each as often as it is in one: 1 MiB."""
CLIENT_NAME_MAX = 64
KEYS_WEIGHED = 16
"""Routing keys of a message that count as much as one method off the hot path."""

HANDSHAKE, RUNNING, CLOSING, CLOSED = 1, 2, 3, 4


class Connection(FrameParser):
    """One client. `peer` and `local` are (address, port); `listener` is the name of the one that
    accepted it."""

    __slots__ = (
        "_capabilities",
        "_client_properties",
        "_host",
        "_routed_queues",
        "_routes",
        "_routes_version",
        "_silent_beats",
        "_specials",
        "_timer",
        "auth_mechanism",
        "client",
        "client_version",
        "close_reason",
        "connected_at_ms",
        "consumer_arguments",
        "consumers_begun",
        "exclusive_queues",
        "handshake",
        "heartbeat",
        "id",
        "listener",
        "local",
        "long_work",
        "name",
        "peer",
        "protocol",
        "proxied",
        "tls",
        "user",
        "user_provided_name",
        "vhost",
    )

    def __init__(
        self,
        host: Host,
        turn: Any,
        transport: Any,
        fd: int,
        *,
        id: int,
        peer: tuple[str, int],
        local: tuple[str, int],
        listener: str,
        connected_at_ms: int,
        tls: Any = None,
        proxied: bool = False,
    ) -> None:
        config = host.config
        super().__init__(
            turn, transport, fd, budget=config.pre_login_bytes, unsent_max=config.unsent_max
        )
        self._host = host
        self._capabilities: dict[str, Any] = {}
        self._client_properties = b""
        self.handshake = Handshake(self, host)
        self._routes: dict[tuple[bytes, bytes], tuple[Exchange, Found | None]] = {}
        self._routes_version = 0
        self._routed_queues = 0
        self._silent_beats = 0
        self._specials = 0
        self._timer = host.later(host.config.handshake_timeout, self._handshake_timed_out)
        self.auth_mechanism = ""
        # The client library, as it calls itself.
        self.client = ""
        self.client_version = ""
        self.close_reason = ""
        self.connected_at_ms = connected_at_ms
        # Bytes of memory, about.
        self.consumer_arguments = 0
        # Since they were counted last: never fewer than there are.
        self.consumers_begun = 0
        # Kept true by the vhost: such a queue may be deleted and its name used by another client.
        self.exclusive_queues: set[str] = set()
        self.heartbeat = 0
        self.id = id
        self.listener = listener
        self.local = local
        self.long_work: LongWork | None = None
        self.peer = peer
        self.name = f"{_address(peer)} -> {_address(local)}"
        self.protocol = "AMQP 0-9-1"
        self.proxied = proxied
        self.tls = tls
        self.user = ""
        self.user_provided_name = ""
        self.vhost: Any = None

    # -- what others see ---------------------------------------------------------------------------

    @property
    def client_properties(self) -> dict[str, Any]:
        return Reader(self._client_properties).table() if self._client_properties else {}

    @property
    def state(self) -> str:
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

    def label(self) -> str:
        return self.name

    @property
    def host(self) -> Host:
        return self._host

    @property
    def rights(self) -> Any:
        """What the user may do in the vhost."""
        return self._host.access.rights(self.user, self.vhost.name)

    def check(self, kind: str, resource_kind: str, name: str) -> None:
        """Raises AccessRefused unless the user may `configure`, `write` or `read` the resource."""
        self.rights.check(kind, resource_kind, name)

    def introduce(self, client_properties: dict[str, Any]) -> None:
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
        name = client_properties.get("connection_name")
        self.user_provided_name = name if isinstance(name, str) else ""

    def can(self, capability: str) -> bool:
        """Whether the client announced a capability."""
        return self._capabilities.get(capability) is True

    # -- handshake ---------------------------------------------------------------------------------

    def on_protocol_header(self, header: bytes) -> None:
        self.handshake.on_protocol_header(header)

    def on_method(
        self, channel: Channel | None, number: int, name: str, arguments: dict[str, Any]
    ) -> None:
        """Carries out a decoded method. Raises AMQPError."""
        if channel is not None or name == "channel.open":
            commands.run(self, channel, number, name, arguments)
            return
        if self.phase == HANDSHAKE:
            if name == "connection.close":
                self.send(method_frame(0, "connection.close-ok"))
                self.finish()
            else:
                self.handshake.on_method(name, arguments)
        elif name == "connection.close":
            self.close_reason = arguments["reply_text"]
            since = self.vhost.slices.begun
            self.set_phase(CLOSING)
            self._allow_rest()
            self.end_channels(are_silent=False)
            if not self.after_work(lambda: self._answer_close(since)):
                self._answer_close(since)
        elif name == "connection.update-secret":
            # A user with a password has nothing to renew; clients send it anyway.
            self.send(method_frame(0, "connection.update-secret-ok"))
        elif name == "connection.close-ok":
            raise CommandInvalid("connection.close-ok without a connection.close")
        else:
            raise ChannelFault("unexpected method in connection state running")

    def fail_handshake(self, error: AMQPError, class_id: int, method_id: int) -> None:
        """An error before the connection is open."""
        self.handshake.fail(error, class_id, method_id)

    def logged_in(self, user: str) -> None:
        """The host's answer to `login`."""
        if self.phase == HANDSHAKE:
            self.handshake.logged_in(user)
            self.go_on()

    def login_refused(self, reason: str) -> None:
        """The host's answer to `login`."""
        if self.phase == HANDSHAKE:
            self.handshake.login_refused(reason)
            self.go_on()

    def begin(self, vhost: Any) -> None:
        """The handshake is over: the connection is open in its vhost."""
        self.vhost = vhost
        self.handshake = None  # type: ignore[assignment]
        self._timer.cancel()
        self.set_phase(RUNNING)
        self.send(method_frame(0, "connection.open-ok"))
        if self.heartbeat:
            self._timer = self._host.later(self.heartbeat / 2, self._beat)
        self._host.opened(self)
        self._host.clients.changed()

    def _handshake_timed_out(self) -> None:
        if self.phase < RUNNING:
            log.warning("connection %s: no connection.open within the handshake's time", self.name)
            self.drop()

    def close_silently(self) -> None:
        """Ends the connection without a word, later: a refused stranger has to wait."""
        self.set_phase(CLOSED)
        self._allow_rest()
        self._timer.cancel()
        self._timer = self._host.later(SILENT_CLOSE_S, self.drop)

    def out_and_close(self, data: bytes) -> None:
        """Says one last thing."""
        self.send(data)
        self.finish()

    # -- heartbeats --------------------------------------------------------------------------------

    def _beat(self) -> None:
        """Every half interval: sends a heartbeat, and ends a connection that was silent for two
        intervals."""
        if self.phase != RUNNING:
            return
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

    # -- alarms ------------------------------------------------------------------------------------

    @property
    def publishes(self) -> bool:
        """Whether a message came on one of its channels."""
        return any(channel.published for channel in self.channels.values())

    def block(self) -> None:
        """A publish came during an alarm: it waits, and the connection is not read any more."""
        self.blocked = True
        self.transport.pause_reading()
        reason = self._host.alarm_reason
        log.warning("connection %s is blocked: %s", self.name, reason)
        if self.can("connection.blocked"):
            self.send(method_frame(0, "connection.blocked", reason=reason))

    def alarm_set(self) -> None:
        """From now on a publish waits. One that is not read already, because unwritten messages
        fill their memory, waits too: nothing else would tell its client."""
        self.set_alarmed(True)
        if self.paused and not self.blocked and self.phase == RUNNING:
            self.block()

    def alarm_over(self) -> None:
        """The last alarm is cleared: publishing continues where it stopped."""
        self.set_alarmed(False)
        if self.blocked:
            if self.phase == RUNNING and self.can("connection.blocked"):
                self.send(method_frame(0, "connection.unblocked"))
            self._unblock()

    def _unblock(self) -> None:
        self.blocked = False
        # Its heartbeats are still in the socket.
        self.heard = True
        self.read_on()
        self.go_on()

    def stop_reading(self) -> None:
        self.transport.pause_reading()

    def read_on(self) -> None:
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

    def open_channel(self, number: int) -> Channel:
        """Raises NotAllowed at the limits."""
        if self.channel_count >= self.channel_max:
            raise NotAllowed(
                f"number of channels opened ({self.channel_count}) has reached the negotiated "
                f"channel_max ({self.channel_max})"
            )
        limit = self._host.access.user_limit(self.user, "max-channels")
        if limit is not None and self.channel_count >= limit:
            raise NotAllowed(
                f"number of channels opened for user '{self.user}' has reached the maximum "
                f"allowed user limit of ({limit})"
            )
        config = self._host.config
        channel = Channel(
            self,
            self.output,
            number,
            self._host.persister,
            self._host.topology,
            max_message_size=config.max_message_size,
            max_unacked=config.max_unacked,
            body_in_memory=config.body_in_memory,
            bodies=self.vhost.bodies,
        )
        channel.traced = self.vhost.tracer.on
        channel.recorder = self.vhost.recorder
        self.put_channel(channel)
        self._host.channel_opened(channel)
        self._host.clients.changed()
        return channel

    def has_ack_timeout(self, queue: Any) -> bool:
        """Whether a delivery of the queue may stay unacknowledged for a limited time only."""
        return timeout_of(queue, self._host.config.consumer_timeout) > 0

    def after_work(self, callback: Callable[[], object]) -> bool:
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

    def settle_in_slices(self, channel: Channel, last: int, how: int) -> None:
        """An ack, nack or reject of very many deliveries, up to the tag `last`."""
        LongWork(self, settled(channel, last, how)).begin()

    def end_channel(self, channel: Channel, then: Callable[[], object]) -> None:
        """The channel's consumers go, its unacked messages go back, unfinished content never
        happened; `then()` is called when that is done."""

        def steps() -> Iterator[None]:
            yield from self._ended([channel])
            then()

        LongWork(self, steps()).begin()

    def _ended(self, channels: list[Channel]) -> Iterator[None]:
        """Ends channels, a consumer or some unacked messages at a step."""
        held = HeldBack()
        try:
            for channel in channels:
                if channel.transaction is not None:
                    self.vhost.slices.begin(channel.transaction.take().emptied())
                channel.end()
                for consumer in list(channel.deliveries.consumers.values()):
                    self.leave_consumer(channel, consumer)
                    consumer.queue.remove_consumer(consumer)
                    yield
                yield from given_back(channel, channel.deliveries.next_tag - 1, held)
                self._host.channel_closed(channel)
                yield
        finally:
            held.let_go()

    def end_queues(self) -> None:
        """Exclusive queues live as long as their connection."""
        if self.exclusive_queues:
            self.vhost.delete_exclusive(self)

    def end_channels(self, *, are_silent: bool = True) -> None:
        """Ends all channels, behind what `after_work` waits for if there is much to do; unless
        `are_silent`, their replies that are held still go out."""
        open_channels = list(self.channels.values())
        if open_channels:
            ending = self.stop_deliveries(are_silent)
            LongWork(self, self._forgotten(open_channels, ending)).begin()

    def _forgotten(self, open_channels: list[Channel], ending: list[Channel]) -> Iterator[None]:
        yield from self._ended(ending)
        for channel in open_channels:
            self.drop_channel(channel)
            yield

    def drop_channel(self, channel: Channel) -> None:
        super().drop_channel(channel)
        self._host.clients.changed()

    def enter_consumer(self, channel: Channel, consumer: Consumer) -> None:
        """The channel has one more consumer."""
        channel.add_consumer(consumer)
        self.consumer_arguments += memory_of(consumer.arguments)
        self._host.clients.changed()

    def leave_consumer(self, channel: Channel, consumer: Consumer) -> None:
        """The channel has it no more; its queue forgets it in the same turn."""
        channel.deliveries.remove_consumer(consumer)
        self.consumer_arguments -= memory_of(consumer.arguments)
        self._host.clients.changed()

    def cancel_consumer(self, consumer: Consumer) -> None:
        """Ends a consumer from our side: tells the client, if it said that it understands."""
        channel: Any = consumer.channel
        self.leave_consumer(channel, consumer)
        consumer.stop()
        if self.can("consumer_cancel_notify") and not channel.closing:
            channel.replies.send(
                method_frame(
                    channel.number, "basic.cancel", consumer_tag=consumer.tag, no_wait=True
                )
            )

    # -- tracing -----------------------------------------------------------------------------------

    def trace_publish(
        self,
        channel: Channel,
        exchange: bytes,
        routing_key: bytes,
        listed: bytes,
        body: bytes,
        queues: tuple[Any, ...],
    ) -> None:
        """The firehose is on: a message was published."""
        who = (self.name, channel.number, self.user)
        self.vhost.tracer.published(who, text(exchange), text(routing_key), listed, body, queues)

    def trace_delivery(
        self,
        channel: Channel,
        exchange: bytes,
        routing_key: bytes,
        listed: bytes,
        body: bytes,
        queue: Any,
        redelivered: bool,
    ) -> None:
        """The firehose is on: a message goes to a consumer or answers a get."""
        who = (self.name, channel.number, self.user)
        self.vhost.tracer.delivered(
            who, text(exchange), text(routing_key), listed, body, queue.name, redelivered
        )

    # -- routing -----------------------------------------------------------------------------------

    def resolve(
        self, channel: Channel, exchange_name: bytes, routing_key: bytes
    ) -> tuple[Exchange, Found | Steps | None]:
        """The exchange and, where the key alone decides, the queues, or what finds very many.
        Raises AccessRefused or NotFound.

        Holds until the topology's version rises.
        """
        version = self._host.topology.version
        found = self._routes.get((exchange_name, routing_key))
        if found is not None and self._routes_version == version:
            return found
        name = text(exchange_name)
        key = text(routing_key)
        exchange = publishing.check_target(self.rights, self.vhost, name, key)
        added = added_queues.of_key(key) if not name else None
        targets: Found | Steps | None = (
            added.targets(self._host, self.vhost, key)
            if added is not None
            else first_step(self.vhost.routes.routing(exchange, [key], {}))
            if self.vhost.routes.is_by_key(exchange)
            else None
        )
        if targets is None or isinstance(targets, tuple):
            self.keep_route(version, exchange_name, routing_key, exchange, targets)
        if self.long_work is None:
            # A key that is not remembered may take a hundred times as long as one that is.
            self.count_work(0)
        return exchange, targets

    def keep_route(
        self,
        version: int,
        exchange_name: bytes,
        routing_key: bytes,
        exchange: Exchange,
        targets: Found | None,
    ) -> None:
        """This was the route when the topology had that version."""
        if (
            self._routes_version != version
            or len(self._routes) >= ROUTES_MAX
            or self._routed_queues >= ROUTED_QUEUES_MAX
        ):
            self._routes.clear()
            self._routes_version = version
            self._routed_queues = 0
        self._routes[exchange_name, routing_key] = exchange, targets
        self._routed_queues += len(targets or ())

    def publish_in_slices(self, steps: Iterator[None]) -> None:
        """A message to very many queues."""
        LongWork(self, steps).begin()

    def special(
        self,
        channel: Channel,
        exchange: Any,
        targets: Found | None,
        routing_key: bytes,
        listed: bytes,
        mandatory: bool,
    ) -> tuple[Found | Steps, bytes | None]:
        """The queues of a message whose properties matter for its route, or what finds very many,
        after checking those, and what replaces the properties, if anything does. Raises
        PreconditionFailed or AccessRefused."""
        self._count_special()
        found = properties.decode(listed)
        most = self._host.config.routing_keys_max
        key = text(routing_key)
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
        return first_step(self.vhost.routes.publishing(exchange, keys, found, listed)), replaced

    def check_properties(self, channel: Channel, exchange: Any, listed: bytes) -> None:
        """Raises what `special` would raise."""
        self._count_special()
        found, most = properties.decode(listed), self._host.config.routing_keys_max
        publishing.check_properties(self.rights, channel, exchange, "", found, most)

    def _count_special(self) -> None:
        """Decoding properties takes 3 to 10 microseconds: eight weigh as much as a declare. A chunk
        of small publishes has thousands."""
        self._specials += 1
        if not self._specials & 7 and self.long_work is None:
            self.count_work(1)

    def refused(self, exchange: Any, listed: bytes) -> None:
        """A queue refused a publish: when it is sent again, that is no duplicate."""
        if exchange.duplicates is not None:
            exchange.duplicates.forget(listed)

    def _answer_close(self, since: int) -> None:
        """The channels have ended. The connection's queues are gone, and the acks before it
        written, before the client may believe it."""
        self.end_queues()
        self.vhost.slices.over(self._close_when_written, since)

    def _close_when_written(self) -> None:
        persister = self._host.persister
        if persister.has_written_all:
            self._close_ok()
        else:
            persister.after_round(self._close_ok, False)

    def _close_ok(self) -> None:
        if self.phase == CLOSING:
            self.send(method_frame(0, "connection.close-ok"))
            self.finish()

    # -- end ---------------------------------------------------------------------------------------

    def close(self, code: int = 320, text: str = "Closed via management plugin") -> None:
        """Ends the connection with a reason, as an operator does."""
        if self.after_work(lambda: self.close(code, text)):
            return
        if self.phase == RUNNING:
            self.close_reason = text
            self.close_with(code, f"CONNECTION_FORCED - {text}"[:255], 0, 0)
        elif self.phase < RUNNING:
            self.drop()

    def await_close_ok(self, lost_sync: bool) -> None:
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

    def finish(self) -> None:
        """All is sent: the connection is over, and its transport waits for the client to
        close, for a bounded time. Frames that are still under way would meet a closed socket
        otherwise, and its reset would take the last answers from the client."""
        if self.after_work(self.finish):
            return
        self._timer.cancel()
        self.end_channels()
        if not self.after_work(self._finish):
            self._finish()

    def _finish(self) -> None:
        self.output.end_writing()
        self.set_closed()
        self._allow_rest()
        self.end_queues()
        self.paused = self.blocked = False
        self._timer = self._host.later(self._patience_s, self.drop)
        self._host.closed(self)
        self._host.clients.changed()
        self._host.leaving.add(self)
        self.transport.resume_reading()

    @property
    def _patience_s(self) -> float:
        """How long a client may take to answer connection.close, or to close its transport."""
        config = self._host.config
        return float(config.close_timeout if self.user else config.handshake_timeout)

    def _allow_rest(self) -> None:
        """Sets how much of what the client still sends is thrown away."""
        config = self._host.config
        self.allow(config.close_discard_max if self.user else config.pre_login_bytes)

    def drop(self) -> None:
        """Ends the transport without another word."""
        self.set_phase(CLOSED)
        self.transport.abort()

    def lost(self, reason: str = "") -> None:
        """The transport is gone. Long work under way is completed in its slices first. The end of
        very many at the same moment takes several turns."""
        self._timer.cancel()
        self.set_closed()
        if self._host.stopping:
            self._lost(reason)
        else:
            self.when_there_is_time(lambda: self._lost(reason))

    def _lost(self, reason: str) -> None:
        if self.after_work(lambda: self._lost(reason)):
            return
        if self.handshake is not None:
            self.handshake.end()
            self.handshake = None  # type: ignore[assignment]  # it refers to us
        if not self.close_reason:
            self.close_reason = reason
        self.end_channels()
        if not self.after_work(self._gone):
            self._gone()

    def _gone(self) -> None:
        """The channels have ended, and there is no client to answer."""
        self.end_queues()
        # Exclusive queues are in it, and they have this connection.
        self._routes.clear()
        self._host.leaving.discard(self)
        self._host.closed(self)
        self._host.clients.changed()


def _shown(told: Any) -> str:
    """What a client library says of itself: at most so much, kept once for all its connections."""
    return sys.intern(told[:CLIENT_NAME_MAX]) if isinstance(told, str) else ""


def _address(where: tuple[str, int]) -> str:
    address, port = where
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"

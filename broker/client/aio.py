"""The client on an event loop: TCP, TLS and Unix sockets, heartbeats, and calls that wait.

    async with await connect(parse("amqp://localhost")) as connection:
        channel = await connection.open_channel()
        await channel.call("queue.declare", queue="jobs", durable=True)
        await channel.consume("jobs", on_batch, prefetch=1000)

Whatever a server does to a connection or a channel is raised where it is used next, and by
`closed`. Deliveries are handed to a plain function in the loop's turn in which they came.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

from broker.client.batch import Batch
from broker.client.channel import ChannelCore, ConsumerCore
from broker.client.core import ClientCore
from broker.client.errors import ClientError, ConnectionLost, TLSFailed
from broker.client.measuring import Histogram
from broker.client.message import Message
from broker.client.tls import context_of, reason_of
from broker.client.uri import Endpoint

READ_BYTES = 256 * 1024
WRITE_HIGH = 1024 * 1024
CLOSE_TIMEOUT_S = 10.0
# Heartbeat intervals of silence after which a peer counts as lost (RabbitMQ: two to three).
MISSED_MAX = 2
OnBatch = Callable[["Channel", Batch], None]


class _Shared(threading.local):
    """The buffer that all connections of a thread read to: nothing of it is needed once the core
    has taken it, and thousands of connections with one each would take much memory."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(READ_BYTES))


_shared = _Shared()


class Consumer:
    """One consumer of a channel."""

    def __init__(self, channel: Channel, core: ConsumerCore, on_batch: OnBatch) -> None:
        self.channel = channel
        self.core = core
        self.on_batch = on_batch
        self.cancelled = asyncio.Event()
        """Set when the consumer was cancelled, by either side."""


class Channel:
    """One channel of a connection; `Connection.open_channel` makes it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.on_return: Callable[[Message, str], None] | None = None
        """Called with each returned message and the reply text."""
        self.on_refused: Callable[[list[int]], None] | None = None
        """Called with the sequence numbers of publishes that were nacked."""
        self.confirmed = asyncio.Event()
        """Set whenever confirms came in; the waiting task clears it."""
        self.on_confirmed: Callable[[], None] | None = None
        """Called whenever confirms came in."""
        self.ended: asyncio.Future[ClientError] = connection.new_future()
        """Why the channel ended, once it has."""
        self._tags = itertools.count(1)
        self.core: ChannelCore

    async def call(self, name: str, **arguments: Any) -> Any:
        """Sends a method and returns the arguments of its reply. Raises ClientError."""
        token = asyncio.get_running_loop().create_future()
        self.core.request(name, token, **arguments)
        self.connection.flush()
        return await token

    async def select_confirms(self, histogram: Histogram | None = None) -> None:
        """Puts the channel into confirm mode; times from publish to confirm go to the
        histogram."""
        await self.call("confirm.select")
        self.core.select_confirms(histogram)

    async def confirms_below(self, count: int) -> None:
        """Waits until fewer than `count` publishes are unconfirmed. Raises ClientError."""
        unconfirmed = self.core.unconfirmed
        assert unconfirmed is not None, "select_confirms comes first"
        while unconfirmed.count >= count:
            self.core.check()
            self.confirmed.clear()
            await self.confirmed.wait()
        self.core.check()

    async def consume(
        self,
        queue: str,
        on_batch: OnBatch,
        *,
        prefetch: int | None = None,
        no_ack: bool = False,
        exclusive: bool = False,
        arguments: dict[str, Any] | None = None,
        tag: str = "",
    ) -> Consumer:
        """Starts a consumer; every chunk's deliveries go to `on_batch`, which acknowledges and
        keeps nothing of the batch. Raises ClientError."""
        if prefetch is not None:
            await self.call("basic.qos", prefetch_count=prefetch)
        tag = tag or f"leveret-{self.core.number}-{next(self._tags)}"
        core = self.core.add_consumer(tag.encode())
        consumer = Consumer(self, core, on_batch)
        core.owner = consumer
        try:
            await self.call(
                "basic.consume",
                queue=queue,
                consumer_tag=tag,
                no_ack=no_ack,
                exclusive=exclusive,
                arguments=arguments or {},
            )
        except BaseException:
            self.core.remove_consumer(core)
            raise
        return consumer

    async def cancel(self, consumer: Consumer) -> None:
        """Stops a consumer; deliveries that were under way still come before the reply."""
        await self.call("basic.cancel", consumer_tag=consumer.core.tag.decode())
        self.core.remove_consumer(consumer.core)
        consumer.cancelled.set()

    async def get(self, queue: str, *, no_ack: bool = False) -> Message | None:
        """One message, or None if the queue has none. Raises ClientError."""
        found: Message | None = await self.call("basic.get", queue=queue, no_ack=no_ack)
        return found

    async def close(self) -> None:
        """channel.close; returns when the server has answered."""
        if self.core.closed is None:
            token = asyncio.get_running_loop().create_future()
            self.core.close(token)
            self.connection.flush()
            await token


class Connection(asyncio.BufferedProtocol):
    """One connection; `connect` makes it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.core = ClientCore(endpoint)
        self.on_blocked: Callable[[str | None], None] | None = None
        """Called with the reason when the server blocks publishers, with None when it ends."""
        loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[ClientError] = loop.create_future()
        """Why the connection ended, once it has."""
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._view: memoryview | None = None
        """Where to read to, unless it is where all connections do."""
        self._channels: dict[ChannelCore, Channel] = {}
        self._writable = asyncio.Event()
        self._writable.set()
        self._is_full = False
        self._heartbeat: asyncio.TimerHandle | None = None
        self._received = self._wrote = loop.time()

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # What the caller asks.

    async def open_channel(self) -> Channel:
        """A new channel. Raises ClientError, or ValueError if the server allows no more."""
        channel = Channel(self)
        token = self._loop.create_future()
        channel.core = self.core.open_channel(token)
        self._channels[channel.core] = channel
        self.flush()
        await token
        return channel

    @contextlib.asynccontextmanager
    async def channel(self) -> AsyncIterator[Channel]:
        """A channel that is closed at the end."""
        channel = await self.open_channel()
        try:
            yield channel
        finally:
            if self.core.closed is None:
                await channel.close()

    def flush(self) -> None:
        """Writes what the core has to say."""
        if self.core.pending and self._transport is not None:
            self._wrote = self._loop.time()
            self._transport.write(self.core.take_output())

    @property
    def is_writable(self) -> bool:
        """Whether the socket takes more, and the server publishes."""
        return self._writable.is_set()

    async def writable(self) -> None:
        """Waits until `is_writable`. Raises the error that ended the connection."""
        await self._writable.wait()
        if self.core.closed is not None:
            raise self.core.closed

    def new_future(self) -> asyncio.Future[Any]:
        """A future of the connection's loop."""
        return self._loop.create_future()

    def limit_reads(self, count: int) -> None:
        """Reads at most `count` bytes at a time; pauses take effect after each read."""
        self._view = memoryview(bytearray(count))

    def pause_reading(self, seconds: float) -> None:
        """Reads nothing for a while, so that the server holds back deliveries."""
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()
            self._loop.call_later(seconds, self._resume_reading)

    def hold_reading(self, is_held: bool) -> None:
        """Stops reading, or reads again; what the server sends meanwhile stays in the socket."""
        if not is_held:
            self._resume_reading()
        elif self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    async def close(self) -> None:
        """connection.close; returns when the server has answered, or after a time without an
        answer. Never raises for a connection that has ended."""
        if self.core.closed is None:
            self.core.close()
            self.flush()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await asyncio.shield(self.ended)
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Drops the connection without connection.close."""
        if self._transport is not None:
            self._transport.abort()

    # What the transport tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_HIGH)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view if self._view is not None else _shared.view

    def buffer_updated(self, length: int) -> None:
        self._received = self._loop.time()
        self.core.receive(self.get_buffer(length), length)
        self._act()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        reason = "the server ended the connection" if error is None else str(error)
        kind = ConnectionLost
        if isinstance(error, ssl.SSLError):
            kind, reason = TLSFailed, reason_of(error)
        elif not self.opened.done():
            # Brokers that have no room for a connection end it without a word.
            if isinstance(error, OSError):
                reason = reason_of(error)
            reason += " before the login was over; it may allow no more connections"
        self.core.lost(kind(f"{self.endpoint.shown}: {reason}"))
        self._transport = None
        self._act()

    def pause_writing(self) -> None:
        self._is_full = True
        self._writable.clear()

    def resume_writing(self) -> None:
        self._is_full = False
        if self.core.blocked is None:
            self._writable.set()

    # How it works.

    def _act(self) -> None:
        """Carries out the events of the core."""
        events = self.core.events
        while events:
            # Callbacks may ask something that adds events.
            some = [*events]
            events.clear()
            try:
                while some:
                    kind, *facts = some.pop(0)
                    _EVENTS[kind](self, *facts)
            finally:
                # If a callback raised: the remaining events are handled later.
                events[:0] = some
        self.flush()

    def _on_open(self) -> None:
        if not self.opened.done():
            self.opened.set_result(None)
        if self.core.heartbeat:
            self._heartbeat = self._loop.call_later(self.core.heartbeat / 2, self._beat)

    def _beat(self) -> None:
        interval = self.core.heartbeat
        now = self._loop.time()
        if self._transport is not None and not self._transport.is_reading():
            self._received = now  # what came meanwhile lies in the socket
        if now - self._received > MISSED_MAX * interval:
            self.core.lost(
                ConnectionLost(
                    f"{self.endpoint.shown}: nothing came for {MISSED_MAX * interval} seconds"
                )
            )
            self._act()
            self.abort()
            return
        if now - self._wrote >= interval / 2:
            self.core.send_heartbeat()
            self.flush()
        self._heartbeat = self._loop.call_later(interval / 2, self._beat)

    def _on_blocked(self, reason: str) -> None:
        self._writable.clear()
        if self.on_blocked is not None:
            self.on_blocked(reason)

    def _on_unblocked(self) -> None:
        if not self._is_full:
            self._writable.set()
        if self.on_blocked is not None:
            self.on_blocked(None)

    def _on_reply(self, token: asyncio.Future[Any], arguments: Any) -> None:
        if not token.done():
            token.set_result(arguments)

    def _on_failed(self, token: asyncio.Future[Any], error: ClientError) -> None:
        if not token.done():
            token.set_exception(error)

    def _on_deliveries(self, core: ConsumerCore) -> None:
        consumer: Consumer = core.owner
        if core.batch.count:
            consumer.on_batch(consumer.channel, core.batch)
            core.batch.drop()

    def _on_confirms(self, core: ChannelCore) -> None:
        channel = self._channels.get(core)
        if channel is None:
            return  # it was closed by what came behind
        assert core.unconfirmed is not None
        refused = core.unconfirmed.refused
        if refused:
            if channel.on_refused is not None:
                channel.on_refused([*refused])
            refused.clear()
        channel.confirmed.set()
        if channel.on_confirmed is not None:
            channel.on_confirmed()

    def _on_returned(self, core: ChannelCore) -> None:
        channel = self._channels.get(core)
        for message, text in core.take_returns():
            if channel is not None and channel.on_return is not None:
                channel.on_return(message, text)

    def _on_cancelled(self, core: ConsumerCore) -> None:
        core.owner.cancelled.set()

    def _on_channel_closed(self, core: ChannelCore, error: ClientError) -> None:
        channel = self._channels.pop(core, None)
        if channel is not None:
            self._wake(channel, error)

    def _wake(self, channel: Channel, error: ClientError) -> None:
        """Lets everything that waits on a channel notice that it is closed."""
        if not channel.ended.done():
            channel.ended.set_result(error)
        channel.confirmed.set()
        for consumer in channel.core.consumers:
            if consumer.owner is not None:
                consumer.owner.cancelled.set()

    def _on_closed(self, error: ClientError) -> None:
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        if not self.opened.done():
            self.opened.set_exception(error)
        if not self.ended.done():
            self.ended.set_result(error)
        self._writable.set()
        for channel in self._channels.values():
            self._wake(channel, error)
        self._channels.clear()
        self.flush()
        if self._transport is not None:
            self._transport.close()


_EVENTS: dict[str, Callable[..., None]] = {
    "open": Connection._on_open,
    "blocked": Connection._on_blocked,
    "unblocked": Connection._on_unblocked,
    "reply": Connection._on_reply,
    "failed": Connection._on_failed,
    "deliveries": Connection._on_deliveries,
    "confirms": Connection._on_confirms,
    "returned": Connection._on_returned,
    "cancelled": Connection._on_cancelled,
    "channel-closed": Connection._on_channel_closed,
    "closed": Connection._on_closed,
}


async def connect(endpoint: Endpoint) -> Connection:
    """Connects and logs in. Raises ClientError: ConnectionLost where no connection came about,
    ConnectionClosed with the reply code where the server refused."""
    loop = asyncio.get_running_loop()

    def protocol() -> Connection:
        return Connection(endpoint)

    connection: Connection | None = None
    try:
        async with asyncio.timeout(endpoint.connect_timeout):
            if endpoint.path is not None:
                _, connection = await loop.create_unix_connection(protocol, endpoint.path)
            else:
                tls = endpoint.tls
                _, connection = await loop.create_connection(
                    protocol,
                    endpoint.host,
                    endpoint.port,
                    ssl=context_of(tls) if tls is not None else None,
                    server_hostname=endpoint.server_name,
                )
            await connection.opened
    except TimeoutError:
        if connection is not None:
            connection.abort()
        raise ConnectionLost(
            f"{endpoint.shown}: no login within {endpoint.connect_timeout:g} seconds"
        ) from None
    except ssl.SSLError as error:
        raise TLSFailed(f"{endpoint.shown}: {reason_of(error)}") from None
    except OSError as error:
        raise ConnectionLost(f"{endpoint.shown}: {reason_of(error)}") from None
    except BaseException:
        if connection is not None:
            connection.abort()
        raise
    return connection

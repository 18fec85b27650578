"""Prometheus metrics under the names of RabbitMQ's exporter, so that its dashboards just work.

`/metrics` adds up, `/metrics/per-object` has a line per queue, exchange, connection and channel,
`/metrics/detailed?family=…&vhost=…&queue=…` those families that are asked for, and
`/metrics/memory-breakdown` what the memory is used for.
Counters never go down when an object goes.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from broker.access.patterns import BadPattern, Pattern
from broker.server.entrance import ACCEPTED_AT_ONCE, let_wait
from broker.server.metrics.bridges import bridge_metrics
from broker.server.metrics.memory import memory_breakdown
from broker.server.metrics.more_families import more_families
from broker.server.metrics.node import (
    aggregated,
    identity,
    node_families,
    node_metrics,
    object_levels,
)
from broker.server.metrics.objects import Scope, detailed, per_object
from broker.server.metrics.scrapers import BUILT_AT_ONCE, Answer, Place, Places, check
from broker.server.metrics.sums import by_type, channel_sums
from broker.server.pace import Pace
from broker.server.streams import streams_of

if TYPE_CHECKING:
    from broker.server.app import Broker

log = logging.getLogger(__name__)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_HEAD_MAX = 16 * 1024
_TAKEN_WITHIN_S = 30.0
_PIECE_BYTES = 64 * 1024
"""Of a long page, so much is made at a time."""
_FIELDS_MAX = 1000


class MetricsServer:
    """A small HTTP server for scrapers: GET of four pages, without a login unless `metrics_login`
    asks for one."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._places = Places()
        self._building = asyncio.Semaphore(BUILT_AT_ONCE)

    async def start(self, host: str, port: int) -> int:
        """Listens there, too; returns the actual port. `port` 0 is any free one. Raises OSError."""
        server = await asyncio.get_running_loop().create_server(
            streams_of(self._serve, _HEAD_MAX), host, port, backlog=ACCEPTED_AT_ONCE
        )
        let_wait(server, self._broker.config.tcp_backlog)
        self._servers.append(server)
        bound: int = server.sockets[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        peer = writer.get_extra_info("peername")
        place = self._places.take(peer[0], writer) if peer else None
        if place is None:
            writer.close()
            return
        _keep_little(writer, self._broker.config.http_send_buffer)
        self._tasks.add(task)
        try:
            if await self._answer(place, peer[0], reader, writer):
                self._places.scrapers.took_page(place.address)
        except (OSError, ConnectionError, asyncio.CancelledError):
            pass
        except Exception:
            log.exception("a scrape of the metrics failed")
        finally:
            self._tasks.discard(task)
            self._places.give(place)
            writer.close()

    async def _answer(
        self, place: Place, peer: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Whether a page was asked for, and taken whole."""
        try:
            async with asyncio.timeout(self._broker.config.http_timeout):
                request = await reader.readuntil(b"\r\n\r\n")
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return False
        place.answer()
        method, _, rest = request.partition(b" ")
        target, _, version = rest.partition(b"\r\n")[0].partition(b" ")
        path, _, query = target.partition(b"?")
        try:
            if method not in (b"GET", b"HEAD"):
                raise Answer("405 Method Not Allowed", "", "Allow: GET, HEAD\r\n")
            await check(self._broker, request, peer)
            page = lines_of(self._broker, path.decode("latin-1"), query.decode("latin-1"))
            if page is None:
                raise Answer("404 Not Found", "metrics are at /metrics\n")
        except BadPattern as error:
            await _reply(writer, "400 Bad Request", f"queue: {error}\n".encode())
            return False
        except Answer as answer:
            await _reply(writer, answer.status, answer.text.encode(), answer.headers)
            return False
        if method == b"HEAD":
            await _reply(writer, "200 OK", b"")
            return False
        if version == b"HTTP/1.0":
            async with self._building:
                body = await text_of(page)
            await _reply(writer, "200 OK", body)
        else:
            async with contextlib.aclosing(_pieces(page)) as pieces:
                await _send(writer, pieces)
        # Who took it too slowly is cut off by now.
        return not writer.transport.is_closing()


def _keep_little(writer: asyncio.StreamWriter, size: int) -> None:
    """Bounds what the kernel takes of a page that the client does not read: all of it is made."""
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)


def lines_of(broker: Broker, path: str, query: str) -> Iterator[str] | None:
    """The lines of a page, None if there is none of that path. Raises BadPattern for a bad or slow
    expression for names of queues."""
    path = path.rstrip("/")
    if path == "/metrics":
        return _whole(broker, "aggregated", aggregated(broker))
    if path == "/metrics/per-object":
        return _whole(broker, "per-object", per_object(broker))
    if path == "/metrics/memory-breakdown":
        head = [identity(broker, "memory-breakdown")]
        return itertools.chain(head, memory_breakdown(broker))
    if path != "/metrics/detailed":
        return None
    asked = parse_qs(query, max_num_fields=_FIELDS_MAX)
    vhosts, names = asked.get("vhost"), asked.get("queue")
    scope = Scope(
        broker,
        frozenset(vhosts) if vhosts else None,
        Pattern.sent(names[0]).matches if names else None,
        "detailed_",
    )
    families = [
        name
        for text in (*asked.get("family", ()), *asked.get("families", ()))
        for name in text.split(",")
    ]
    wanted = frozenset(families)
    return itertools.chain(
        [identity(broker, "detailed")],
        node_families(broker, wanted, scope.prefix),
        detailed(scope, wanted),
        more_families(scope, wanted),
    )


async def text_of(lines: Iterator[str]) -> bytes:
    """The page as it is sent, built in short steps."""
    pace = Pace()
    parts = []
    for text in lines:
        parts.append(text)
        await pace()
    return "".join(parts).encode("utf-8", "replace")


def _whole(broker: Broker, endpoint: str, rest: Iterator[str]) -> Iterator[str]:
    """A page that begins with all that is counted of the node."""
    of_all = endpoint == "aggregated"
    yield from node_metrics(broker, endpoint)
    yield from by_type(broker, of_all)
    yield from channel_sums(broker, of_all)
    yield from object_levels(broker)
    yield from bridge_metrics(broker, of_all)
    yield from rest


async def _send(writer: asyncio.StreamWriter, pieces: AsyncIterator[bytes]) -> None:
    """A page: whole, if it is short, or in chunks that are made as the client takes them. What
    fails in the middle leaves the answer without its end; a client that takes it too slowly is cut
    off."""
    begun = await anext(pieces, b"")
    following = await anext(pieces, None)
    if following is None:
        await _reply(writer, "200 OK", begun)
        return
    writer.write(_head("200 OK", "Transfer-Encoding: chunked\r\n"))
    writer.transport.set_write_buffer_limits(high=_PIECE_BYTES)
    try:
        async with asyncio.timeout(_TAKEN_WITHIN_S):
            _write_chunk(writer, begun)
            while following is not None:
                _write_chunk(writer, following)
                await writer.drain()
                following = await anext(pieces, None)
    except TimeoutError:
        writer.transport.abort()
        return
    _write_chunk(writer, b"")
    await _taken(writer)


async def _pieces(lines: Iterator[str]) -> AsyncGenerator[bytes]:
    """The text in pieces, each made in short steps."""
    pace = Pace()
    parts = []
    size = 0
    for text in lines:
        parts.append(text)
        size += len(text)
        if size >= _PIECE_BYTES:
            yield "".join(parts).encode("utf-8", "replace")
            parts, size = [], 0
        await pace()
    if parts:
        yield "".join(parts).encode("utf-8", "replace")


def _write_chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))


def _head(status: str, headers: str) -> bytes:
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\n"
        f"Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n"
        f"{headers}\r\n"
    ).encode("ascii")


async def _reply(writer: asyncio.StreamWriter, status: str, body: bytes, headers: str = "") -> None:
    writer.write(_head(status, f"Content-Length: {len(body)}\r\n{headers}"))
    writer.write(body)
    await _taken(writer)


async def _taken(writer: asyncio.StreamWriter) -> None:
    """Until the client has taken all, or for so long that it is cut off."""
    try:
        async with asyncio.timeout(_TAKEN_WITHIN_S):
            # Taken whole, not only below a mark: who does not read must not keep a place.
            writer.transport.set_write_buffer_limits(high=0)
            await writer.drain()
    except TimeoutError:
        writer.transport.abort()
    except ConnectionError:
        pass

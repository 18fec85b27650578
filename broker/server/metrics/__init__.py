"""Prometheus metrics under the names of RabbitMQ's exporter, so that its dashboards just work.

`/metrics` adds up, `/metrics/per-object` has a line per queue, exchange, connection and channel.
Counters never go down when an object goes.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from broker.server.control.encoding import Pace
from broker.server.entrance import ACCEPTED_AT_ONCE, let_wait
from broker.server.metrics.node import aggregated, node_metrics
from broker.server.metrics.objects import per_object

log = logging.getLogger(__name__)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_HEAD_MAX = 16 * 1024
_TAKEN_WITHIN_S = 30.0
_CONNECTIONS_MAX = 64


class MetricsServer:
    """A small HTTP server for scrapers: GET of the two pages, no authentication."""

    def __init__(self, broker: Any) -> None:
        self._broker = broker
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self, host: str, port: int) -> int:
        """Listens there, too; returns the actual port. `port` 0 is any free one. Raises OSError."""
        server = await asyncio.start_server(
            self._serve, host, port, limit=_HEAD_MAX, backlog=ACCEPTED_AT_ONCE
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
        self._tasks.add(task)
        try:
            if len(self._tasks) <= _CONNECTIONS_MAX:
                await self._answer(reader, writer)
        except (OSError, ConnectionError, asyncio.CancelledError):
            pass
        except Exception:
            log.exception("a scrape of the metrics failed")
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._broker.config.http_timeout):
                request = await reader.readuntil(b"\r\n\r\n")
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return
        method, _, rest = request.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0].rstrip(b"/")
        pages = {
            b"/metrics": aggregated,
            b"/metrics/per-object": per_object,
        }
        if method not in (b"GET", b"HEAD"):
            await _reply(writer, "405 Method Not Allowed", b"", "Allow: GET, HEAD\r\n")
        elif path not in pages:
            await _reply(writer, "404 Not Found", b"metrics are at /metrics\n")
        else:
            body = await self._page(pages[path])
            await _reply(writer, "200 OK", b"" if method == b"HEAD" else body)

    async def _page(self, page: Any) -> bytes:
        pace = Pace()
        parts = []
        for lines in (node_metrics(self._broker), page(self._broker)):
            for text in lines:
                parts.append(text)
                await pace()
        return "".join(parts).encode("utf-8", "replace")


async def _reply(writer: asyncio.StreamWriter, status: str, body: bytes, headers: str = "") -> None:
    writer.write(
        f"HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {len(body)}\r\n"
        f"Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n"
        f"{headers}\r\n".encode("ascii")
    )
    writer.write(body)
    try:
        async with asyncio.timeout(_TAKEN_WITHIN_S):
            # Taken whole, not only below a mark: who does not read must not keep a place.
            writer.transport.set_write_buffer_limits(high=0)
            await writer.drain()
    except TimeoutError:
        writer.transport.abort()
    except ConnectionError:
        pass

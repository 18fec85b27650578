"""asyncio's streams for servers, without the circles that they end as."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from broker.process.garbage import release


class StreamProtocol(asyncio.StreamReaderProtocol):
    """What `asyncio.start_server` makes, without its circles. An error that ends the connection
    comes without its frames: reader and writer keep it, and the frames of a write refer to both."""

    _held: asyncio.BaseTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._held = transport
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(None if exc is None else exc.with_traceback(None))
        release(self._held)
        del self._held


def streams_of(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    limit: int = 64 * 1024,
) -> Callable[[], StreamProtocol]:
    """Makes the protocols of a server that calls `serve` with each connection's streams."""
    loop = asyncio.get_running_loop()

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            # An error that the reader keeps has the frames of those who read: they refer to it.
            fault = reader.exception()
            if fault is not None:
                fault.__traceback__ = None

    def make() -> StreamProtocol:
        return StreamProtocol(asyncio.StreamReader(limit, loop), served, loop)

    return make

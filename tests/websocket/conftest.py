"""A listener on a free port with a stand-in broker behind it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from broker.server.websocket import WebSocketListener, WebSocketProtocol
from tests.websocket.standin import Broker

Listen = Callable[..., Awaitable[tuple[Broker, str]]]


@pytest.fixture
async def listen() -> AsyncIterator[Listen]:
    """A function that listens, and gives the stand-in and the URL."""
    listeners: list[WebSocketListener] = []
    servers: list[asyncio.Server] = []

    async def start(**settings: Any) -> tuple[Broker, str]:
        broker = Broker(**settings)
        listener = WebSocketListener(broker)
        listeners.append(listener)
        listener.start()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: WebSocketProtocol(listener), "127.0.0.1", 0)
        servers.append(server)
        return broker, f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    yield start
    for server in servers:
        server.close()
    for listener in listeners:
        listener.close()

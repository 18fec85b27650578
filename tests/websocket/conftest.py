"""A listener on a free port with a stand-in broker behind it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from broker.server.websocket import WebSocketListener
from tests.websocket.standin import Broker

Listen = Callable[..., Awaitable[tuple[Broker, str]]]


@pytest.fixture
async def listen() -> AsyncIterator[Listen]:
    """A function that listens, and gives the stand-in and the URL."""
    listeners = []

    async def start(**settings: Any) -> tuple[Broker, str]:
        broker = Broker(**settings)
        listener = WebSocketListener(broker)
        listeners.append(listener)
        host, port = await listener.open("127.0.0.1", 0)
        return broker, f"ws://{host}:{port}"

    yield start
    for listener in listeners:
        await listener.close()

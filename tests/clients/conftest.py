"""Where the real clients connect.

`AMQP_TEST_ADDRESS` and `AMQP_TEST_FLAVOUR` work as in tests/amqp/conftest.py.
"""

import uuid
from collections.abc import AsyncIterator, Iterator

import aio_pika
import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.amqp.conftest import amqp_address as amqp_address


@pytest.fixture
def name() -> str:
    """A name no other test uses."""
    return f"clients-{uuid.uuid4().hex[:12]}"


def parameters(address: tuple[str, int], **more: object) -> pika.ConnectionParameters:
    """pika's parameters for guest at `address`."""
    values: dict[str, object] = {"heartbeat": 0, "blocked_connection_timeout": 30, **more}
    return pika.ConnectionParameters(*address, **values)


@pytest.fixture
def blocking(amqp_address: tuple[str, int]) -> Iterator[pika.BlockingConnection]:
    """An open blocking connection."""
    connection = pika.BlockingConnection(parameters(amqp_address))
    yield connection
    if connection.is_open:
        connection.close()


@pytest.fixture
def channel(blocking: pika.BlockingConnection) -> BlockingChannel:
    """A channel of the blocking connection."""
    return blocking.channel()


@pytest.fixture
async def aio(amqp_address: tuple[str, int]) -> AsyncIterator[aio_pika.abc.AbstractConnection]:
    """An open aio-pika connection."""
    host, port = amqp_address
    async with await aio_pika.connect(f"amqp://guest:guest@{host}:{port}/") as connection:
        yield connection

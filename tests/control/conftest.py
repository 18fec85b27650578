"""A control socket over a stand-in broker and a client on it; and, for policies, one on a real
broker beside an AMQP channel."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from management.broker_client import BrokerClient
from tests.appliance import Appliance
from tests.control.policed import without_policies_after
from tests.control.stand_in import Broker
from tests.control.test_real_broker import connect


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    broker = Broker(tmp_path)
    yield broker
    await broker.stop()


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[BrokerClient]:
    client = await broker.start()
    yield client
    await client.close()


@pytest.fixture
async def policing(shared_broker: Appliance) -> AsyncIterator[BrokerClient]:
    """A client of a real broker, which has no policies afterwards."""
    async with without_policies_after(shared_broker) as client:
        yield client


@pytest.fixture
def connection(shared_broker: Appliance) -> Iterator[pika.BlockingConnection]:
    with contextlib.closing(connect(shared_broker)) as connection:
        yield connection


@pytest.fixture
def channel(connection: Any) -> Any:
    channel = connection.channel()
    channel.confirm_delivery()
    return channel

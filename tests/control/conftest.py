"""A broker in this process, a client of its control socket and a clock for its statistics; and, for
policies, a client of a broker's process beside an AMQP channel."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from broker.server.app import Broker
from management.broker_client import BrokerClient
from tests import inside
from tests.appliance import Appliance
from tests.control.policed import without_policies_after
from tests.control.test_real_broker import connect


@pytest.fixture
def directory() -> Iterator[Path]:
    """For the data of a broker in this process."""
    with inside.in_memory() as directory:
        yield directory


@pytest.fixture
async def broker(directory: Path) -> AsyncIterator[Broker]:
    async with inside.running(directory) as broker:
        yield broker


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[BrokerClient]:
    client = BrokerClient(broker.config.control_socket)
    yield client
    await client.close()


@pytest.fixture
def clock(broker: Broker) -> inside.Clock:
    """The clock of the broker's statistics, which begin anew."""
    clock = inside.Clock()
    inside.forget_figures(broker, clock)
    return clock


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

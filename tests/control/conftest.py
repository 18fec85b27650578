"""A control socket over a stand-in broker, and a client on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from management.broker_client import BrokerClient
from tests.control.stand_in import Broker


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

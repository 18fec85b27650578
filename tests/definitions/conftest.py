"""A control client on a broker of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from management.broker_client import BrokerClient, BrokerError
from tests.appliance import Appliance
from tests.control.test_real_broker import control

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture
async def client(make_broker: Callable[..., Appliance]) -> AsyncIterator[BrokerClient]:
    async with control(make_broker()) as client:
        yield client


@pytest.fixture(scope="session")
def broker_for_refusals(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    """A broker for tests that leave little or nothing behind."""
    broker = Appliance("broker", tmp_path_factory.mktemp("refusals")).start()
    yield broker
    broker.stop()


@pytest.fixture
async def shared_client(broker_for_refusals: Appliance) -> AsyncIterator[BrokerClient]:
    async with control(broker_for_refusals) as client:
        yield client


async def refused(client: BrokerClient, definitions: Any, **where: Any) -> str:
    """Why an import is refused; nothing may be changed by it."""
    before = await client.call("definitions.export")
    with pytest.raises(BrokerError) as caught:
        await client.call("definitions.import", definitions=definitions, **where)
    assert caught.value.status == 400
    assert await client.call("definitions.export") == before
    return caught.value.reason

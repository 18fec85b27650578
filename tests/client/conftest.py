"""Brokers for the client: ours, and Debian's RabbitMQ where it can be had."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from broker.client.aio import Connection, connect
from broker.client.uri import Endpoint
from tests.appliance import Appliance
from tests.bench.rabbitmq import NotAvailable, RabbitMQ


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    try:
        broker = RabbitMQ(tmp_path_factory.mktemp("rabbitmq"))
        broker.start()
    except NotAvailable as error:
        pytest.skip(f"no RabbitMQ: {error}")
    yield broker
    broker.stop()


@pytest.fixture(scope="session", params=["leveret", "rabbitmq"])
def endpoint(request: pytest.FixtureRequest) -> Endpoint:
    """Where to connect: each test runs against both brokers."""
    if request.param == "rabbitmq":
        return Endpoint(port=request.getfixturevalue("rabbitmq").port)
    return of(request.getfixturevalue("shared_broker"))


def of(broker: Appliance) -> Endpoint:
    return Endpoint(host=broker.host, port=broker.amqp_port)


@pytest.fixture
async def connection(endpoint: Endpoint) -> AsyncIterator[Connection]:
    async with await connect(endpoint) as connection:
        yield connection

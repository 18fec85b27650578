"""The broker that the raw-frame tests speak to.

`AMQP_TEST_ADDRESS=host:port` points them at a broker that runs already, and
`AMQP_TEST_FLAVOUR=rabbitmq` expects RabbitMQ 3.10's answers where ours differ on purpose: so the
tests themselves are checked against the broker they were modelled on.
"""

import os
import re
import uuid
from collections.abc import Iterator

import pytest

from tests.amqp.raw import Client


@pytest.fixture(scope="session")
def flavour() -> str:
    """`leveret` or `rabbitmq`."""
    return os.environ.get("AMQP_TEST_FLAVOUR", "leveret")


@pytest.fixture(scope="session")
def amqp_address(request: pytest.FixtureRequest) -> tuple[str, int]:
    """Host and port of the broker under test, shared by all tests: use names of your own."""
    given = os.environ.get("AMQP_TEST_ADDRESS")
    if given:
        host, _, port = given.rpartition(":")
        return host, int(port)
    broker = request.getfixturevalue("shared_broker")
    return broker.host, broker.amqp_port


@pytest.fixture(params=[True, False], ids=["killed", "stopped"])
def kill(request: pytest.FixtureRequest) -> bool:
    """How a broker of the test's own ends before its next start."""
    return bool(request.param)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name no other test uses, for a queue or an exchange."""
    plain = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:60]
    return f"{plain}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def client(amqp_address: tuple[str, int]) -> Iterator[Client]:
    """An open connection with channel 1."""
    with Client.open(amqp_address) as client:
        yield client


@pytest.fixture
def other(amqp_address: tuple[str, int]) -> Iterator[Client]:
    """Another open connection with channel 1."""
    with Client.open(amqp_address) as client:
        yield client

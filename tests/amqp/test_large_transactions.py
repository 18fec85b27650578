"""What a transaction puts aside is limited (`max_uncommitted_bytes`)."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from management.broker_client import BrokerClient
from tests.amqp.raw import Client
from tests.appliance import Appliance

LIMIT = 100_000
PART = 30_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    directory = tmp_path_factory.mktemp("transactions")
    broker = Appliance(
        "broker", directory, max_uncommitted_bytes=LIMIT, body_in_memory="256 KiB"
    ).start()
    yield broker
    broker.stop()


@pytest.fixture
def client(broker: Appliance) -> Iterator[Client]:
    with Client.open((broker.host, broker.amqp_port)) as client:
        client.call(1, "queue.declare", queue="q")
        client.call(1, "queue.purge", queue="q")
        client.call(1, "tx.select")
        yield client


def channel_row(broker: Appliance) -> dict[str, Any]:
    async def ask() -> dict[str, Any]:
        client = BrokerClient(broker.data_dir / "control.sock")
        try:
            answer = await client.call("list", noun="channels")
            (row,) = answer["items"]
            found: dict[str, Any] = row
            return found
        finally:
            await client.close()

    return asyncio.run(ask())


def test_one_message_too_many_closes_the_channel_and_publishes_nothing(
    broker: Appliance, client: Client
) -> None:
    for _ in range(3):
        client.publish(1, "", "q", bytes(PART))
    client.fence(1)
    row = channel_row(broker)
    assert row["messages_uncommitted"] == 3
    assert 3 * PART < row["message_bytes_uncommitted"] < LIMIT
    client.publish(1, "", "q", bytes(PART))
    client.expect_channel_close(1, 406, 60, 40, r"100000 bytes .*max_uncommitted_bytes")
    client.call(1, "channel.open")
    assert client.call(1, "queue.declare", queue="q", passive=True).message_count == 0


@pytest.mark.parametrize("end", ["tx.commit", "tx.rollback"])
def test_its_end_makes_room_for_the_next_one(broker: Appliance, client: Client, end: str) -> None:
    for _ in range(3):
        for _ in range(3):
            client.publish(1, "", "q", bytes(PART))
        client.call(1, end)
        assert channel_row(broker)["message_bytes_uncommitted"] == 0
    count = client.call(1, "queue.declare", queue="q", passive=True).message_count
    assert count == (9 if end == "tx.commit" else 0)


def test_a_message_in_many_frames_counts_whole(client: Client) -> None:
    client.publish(1, "", "q", bytes(600_000))
    client.expect_channel_close(1, 406, 60, 40, "max_uncommitted_bytes")

"""Gets of very many messages, beside other requests."""

from __future__ import annotations

import asyncio

import pytest

from management.broker_client import BrokerClient
from tests.amqp.streams import connect
from tests.appliance import Appliance

COUNT = 2_000


@pytest.mark.parametrize("ackmode", ["ack_requeue_true", "ack_requeue_false"])
async def test_others_are_answered_while_a_get_of_many_messages_goes_on(
    shared_broker: Appliance, ackmode: str
) -> None:
    name = f"long get {ackmode}"
    with connect(shared_broker) as client:
        client.call(1, "queue.declare", queue=name)
        for number in range(COUNT):
            client.publish(1, "", name, b"%d" % number)
        client.fence(1)
    one = BrokerClient(shared_broker.data_dir / "control.sock")
    other = BrokerClient(shared_broker.data_dir / "control.sock")
    try:
        await one.call("whoami")
        await other.call("whoami")
        get = asyncio.create_task(
            one.call("queue.get", vhost="/", name=name, count=COUNT, ackmode=ackmode)
        )
        await asyncio.sleep(0)  # sent
        await other.call("whoami")
        assert not get.done()
        messages = await get
        assert [int(message["payload"]) for message in messages] == list(range(COUNT))
        left = await other.call("queue.get", vhost="/", name=name, count=3)
        kept = ackmode == "ack_requeue_true"
        assert [int(message["payload"]) for message in left] == ([0, 1, 2] if kept else [])
    finally:
        await one.close()
        await other.close()


async def test_a_get_takes_no_more_than_its_answer_has_room_for(shared_broker: Appliance) -> None:
    """Headers count, too: what was settled and could not be answered would be lost."""
    name, count = "many headers", 3_000
    with connect(shared_broker) as client:
        client.call(1, "queue.declare", queue=name)
        for number in range(count):
            client.publish(1, "", name, b"%d" % number, headers={"h": "x" * 4_000})
        client.fence(1)
    one = BrokerClient(shared_broker.data_dir / "control.sock")
    try:
        taken: list[int] = []
        answers = 0
        while len(taken) < count:
            messages = await one.call(
                "queue.get", vhost="/", name=name, count=count, ackmode="ack_requeue_false"
            )
            taken += [int(message["payload"]) for message in messages]
            answers += 1
        assert taken == list(range(count))
        assert answers > 1
    finally:
        await one.close()

"""Replays over restarts and kills: nothing is lost, progress is kept, and doubles are marked."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pika

from management.broker_client import BrokerClient
from tests.amqp import streams
from tests.amqp.raw import Client
from tests.appliance import Appliance
from tests.conftest import Make
from tests.control.replaying import offsets, replay, replayed, taken
from tests.control.test_real_broker import connect, control
from tests.control.test_transfers_kept import progress
from tests.control.transferring import filled, queue, until

COUNT = 20_000
NOTED_EVERY = 4096
"""Messages between two notes of a replay's progress. A kill may take the last note, too."""

STREAM = {"x-queue-type": "stream"}


def fill(broker: Appliance, count: int, **arguments: Any) -> str:
    """A stream with messages `0`, `1`, ..., on disk."""
    with Client.open((broker.host, broker.amqp_port)) as client:
        name = streams.declare(client, **arguments)
        streams.fill(client, name, *(b"%d" % number for number in range(count)))
        return name


def taken_fast(broker: Appliance, name: str) -> list[tuple[int, bool]]:
    """Offsets and marks of all messages of a queue, which are taken."""
    with Client.open((broker.host, broker.amqp_port)) as client:
        declared = client.call(1, "queue.declare", queue=name, durable=True, passive=True)
        client.call(1, "basic.consume", queue=name, no_ack=True)
        found = client.expect_messages(declared.message_count)
        return [
            (message.properties["headers"]["x-replay-offset"], bool(message.redelivered))
            for message in found
        ]


async def row_of(client: BrokerClient, id: int) -> Any:
    (row,) = [each for each in await client.call("transfer.list") if each["id"] == id]
    return row


async def test_a_replay_that_is_killed_goes_on_where_it_was_and_marks_what_is_doubled(
    make_broker: Make,
) -> None:
    broker = make_broker()
    stream = fill(broker, COUNT)
    target = queue(connect(broker).channel())
    async with control(broker) as client:
        started = await replay(client, stream, target)
    kills = 3
    for part in range(1, kills + 1):
        async with control(broker) as client:
            await progress(client, started["id"], part * COUNT // 4)
        broker.kill()
        broker.start()
    async with control(broker) as client:
        row = await until(client, started["id"], "finished")
    found = taken_fast(broker, target)
    seen = Counter(offset for offset, _ in found)
    assert sorted(seen) == list(range(COUNT)), "nothing is lost"
    unmarked = Counter(offset for offset, redelivered in found if not redelivered)
    assert max(unmarked.values()) == 1, "a double is marked"
    assert len(found) <= COUNT + kills * 2 * NOTED_EVERY, "it goes on where it was"
    assert row["left"] == 0


async def test_a_paused_replay_stays_paused_when_the_broker_is_killed_and_goes_on_without_doubles(
    make_broker: Make,
) -> None:
    broker = make_broker()
    channel = connect(broker).channel()
    channel.confirm_delivery()
    stream, target, other = filled(channel, 300, **STREAM), queue(channel), queue(channel)
    async with control(broker) as client:
        started = await replay(client, stream, target, rate=20)
        await progress(client, started["id"], 5)
        await client.call("transfer.pause", id=started["id"])
        # A second one of the stream runs when the first has let it go.
        second = await replayed(client, stream, other, limit=1)
        await client.call("transfer.delete", id=second["id"])
        before = await row_of(client, started["id"])
        assert before["state"] == "paused" and 5 <= before["handed_over"] < 300
    broker.kill()
    broker.start()
    async with control(broker) as client:
        row = await row_of(client, started["id"])
        assert row == before
        await client.call("transfer.resume", id=started["id"], rate=0)
        row = await until(client, started["id"], "finished")
        assert row["handed_over"] == 300
    found = taken(connect(broker).channel(), target)
    assert offsets(found) == list(range(300))
    assert not any(each.redelivered for each in found)


async def test_a_replay_of_a_search_result_knows_its_messages_after_a_kill(
    make_broker: Make,
) -> None:
    broker = make_broker()
    channel = connect(broker).channel()
    channel.confirm_delivery()
    stream = queue(channel, **STREAM, **{"x-stream-index": "header:third"})
    target = queue(channel)
    for number in range(300):
        properties = pika.BasicProperties(headers={"third": number % 3 == 0})
        channel.basic_publish("", stream, b"%d" % number, properties)
    async with control(broker) as client:
        started = await replay(client, stream, target, value="true", rate=30)
        assert started["total"] == 100
        await progress(client, started["id"], 5)
    broker.kill()
    broker.start()
    async with control(broker) as client:
        await client.call("transfer.resume", id=started["id"], rate=0)
        await until(client, started["id"], "finished")
    found = taken(connect(broker).channel(), target)
    assert sorted(set(offsets(found))) == list(range(0, 300, 3))
    unmarked = Counter(offsets([each for each in found if not each.redelivered]))
    assert max(unmarked.values(), default=0) <= 1

"""Transfers over restarts and kills: nothing is lost, and what is there twice is marked."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from management.broker_client import BrokerClient
from tests.amqp import raw
from tests.amqp.raw import Client
from tests.appliance import Appliance
from tests.conftest import Make
from tests.control.test_real_broker import connect, control
from tests.control.transferring import (
    WAIT_S,
    bodies,
    drained,
    filled,
    held,
    queue,
    start,
    until,
)

COUNT = 20_000


def fill(broker: Appliance, name: str, count: int) -> None:
    """A durable queue with messages `0`, `1`, ..., on disk."""
    with Client.open((broker.host, broker.amqp_port)) as client:
        client.call(1, "queue.declare", queue=name, durable=True)
        client.call(1, "confirm.select")
        client.send(
            b"".join(
                raw.publish(1, "", name, b"%d" % number, delivery_mode=2) for number in range(count)
            )
        )
        client.expect_confirms(1, count)


def take_all(broker: Appliance, name: str) -> list[tuple[int, bool]]:
    """Numbers and marks of all messages of a queue, which are taken."""
    with Client.open((broker.host, broker.amqp_port)) as client:
        declared = client.call(1, "queue.declare", queue=name, durable=True, passive=True)
        client.call(1, "basic.consume", queue=name, no_ack=True)
        found = client.expect_messages(declared.message_count)
        return [(int(message.body), bool(message.redelivered)) for message in found]


async def progress(client: BrokerClient, id: int, least: int) -> None:
    """Waits until so many are handed over, or it is over."""
    async with asyncio.timeout(WAIT_S):
        while True:
            (row,) = [each for each in await client.call("transfer.list") if each["id"] == id]
            if row["handed_over"] >= least or row["state"] == "finished":
                return
            await asyncio.sleep(0)


async def test_a_blocked_move_goes_on_after_a_clean_restart(make_broker: Make) -> None:
    broker = make_broker()
    channel = connect(broker).channel()
    channel.confirm_delivery()
    source = filled(channel, 8)
    target = queue(channel, **{"x-max-length": 3, "x-overflow": "reject-publish"})
    async with control(broker) as client:
        started = await start(client, "move", source, target, header="kind", value="even")
        await until(client, started["id"], "blocked")
    broker.stop()
    broker.start()
    channel = connect(broker).channel()
    async with control(broker) as client:
        await until(client, started["id"], "blocked")
        # The move may go on while the target is emptied.
        seen = drained(channel, target)
        assert seen[:3] == [(body, False) for body in bodies(0, 2, 4)]
        row = await until(client, started["id"], "finished")
        assert row["handed_over"] == 4
    assert seen[3:] + drained(channel, target) == [(b"6", False)]
    assert drained(channel, source) == [(body, False) for body in bodies(1, 3, 5, 7)]


async def test_a_stopped_one_stays_stopped_after_a_restart(make_broker: Make) -> None:
    broker = make_broker()
    channel = connect(broker).channel()
    channel.confirm_delivery()
    source = filled(channel, 4)
    target = queue(channel, **{"x-max-length": 1, "x-overflow": "reject-publish"})
    async with control(broker) as client:
        started = await start(client, "move", source, target)
        await until(client, started["id"], "blocked")
        await client.call("transfer.delete", id=started["id"])
    broker.kill()
    broker.start()
    channel = connect(broker).channel()
    assert held(channel, target) == [b"0"]
    async with control(broker) as client:
        (row,) = await client.call("transfer.list")
        assert (row["id"], row["state"], row["handed_over"]) == (started["id"], "stopped", 1)
    assert held(channel, source) == bodies(1, 2, 3)


async def test_rights_that_are_lost_end_it_also_at_a_restart(make_broker: Make) -> None:
    broker = make_broker()
    channel = connect(broker).channel()
    channel.confirm_delivery()
    source = filled(channel, 4)
    target = queue(channel, **{"x-max-length": 1, "x-overflow": "reject-publish"})
    rights: dict[str, Any] = {"user": "mover", "vhost": "/", "configure": "", "read": ".*"}
    async with control(broker) as client:
        await client.call("user.put", name="mover", password="mover", tags="management")
        await client.call("permission.put", write=".*", **rights)
        asked: dict[str, Any] = {
            "vhost": "/",
            "name": source,
            "mode": "move",
            "target": target,
            "as_user": "mover",
        }
        started = await client.call("transfer.start", **asked)
        assert started["user"] == "mover"
        await until(client, started["id"], "blocked")
        await client.call("permission.put", write="", **rights)
        row = await until(client, started["id"], "failed")
        assert f"write access to queue '{target}'" in row["reason"]
        await client.call("permission.put", write=".*", **rights)
        started = await client.call("transfer.start", **asked)
        await until(client, started["id"], "blocked")
    broker.stop()
    users = broker.data_dir / "users.json"
    users.write_text(users.read_text().replace('"mover"', '"mover2"'))
    broker.start()
    async with control(broker) as client:
        row = await until(client, started["id"], "failed")
        assert "user 'mover', who started it, does not exist any more" in row["reason"]
    assert held(connect(broker).channel(), source) == bodies(1, 2, 3)


async def test_a_move_that_is_killed_loses_nothing_and_marks_what_is_doubled(
    make_broker: Make,
) -> None:
    broker = make_broker()
    fill(broker, "source", COUNT)
    fill(broker, "target", 0)
    async with control(broker) as client:
        started = await start(client, "move", "source", "target")
    for part in range(1, 4):
        async with control(broker) as client:
            await progress(client, started["id"], part * COUNT // 4)
        broker.kill()
        broker.start()
    async with control(broker) as client:
        await until(client, started["id"], "finished")
    moved, left = take_all(broker, "target"), take_all(broker, "source")
    assert left == []
    seen = Counter(number for number, _ in moved)
    assert sorted(seen) == list(range(COUNT)), "nothing is lost"
    unmarked = Counter(number for number, redelivered in moved if not redelivered)
    assert max(unmarked.values(), default=0) <= 1, "a double is marked"


async def test_a_copy_that_is_killed_marks_what_is_doubled(make_broker: Make) -> None:
    broker = make_broker()
    fill(broker, "source", COUNT)
    fill(broker, "target", 0)
    async with control(broker) as client:
        started = await start(client, "copy", "source", "target")
        await progress(client, started["id"], COUNT // 2)
    broker.kill()
    broker.start()
    async with control(broker) as client:
        await until(client, started["id"], "finished")
    copied = take_all(broker, "target")
    assert sorted({number for number, _ in copied}) == list(range(COUNT))
    unmarked = Counter(number for number, redelivered in copied if not redelivered)
    assert max(unmarked.values()) == 1
    assert sorted(number for number, _ in take_all(broker, "source")) == list(range(COUNT))


async def test_what_a_move_passed_is_not_marked_when_the_broker_is_killed_later(
    make_broker: Make,
) -> None:
    broker = make_broker()
    channel = connect(broker).channel()
    channel.confirm_delivery()
    source, target = filled(channel, 40), queue(channel)
    # The records are on disk only: a look from there needs a mark, which is taken back at the end.
    broker.stop()
    broker.start()
    channel = connect(broker).channel()
    async with control(broker) as client:
        started = await start(client, "move", source, target, header="kind", value="odd")
        await until(client, started["id"], "finished")
        # It is written with the next round at the latest.
        await client.call("queue.declare", vhost="/", name="round", durable=True)
        await client.call("queue.declare", vhost="/", name="round2", durable=True)
    broker.kill()
    broker.start()
    channel = connect(broker).channel()
    assert drained(channel, source) == [(body, False) for body in bodies(*range(0, 40, 2))]
    assert drained(channel, target) == [(body, False) for body in bodies(*range(1, 40, 2))]

"""Paused queues: messages come in, and none goes out before the queue is resumed."""

import asyncio
from typing import Any

import pytest

from tests.amqp import raw, streams
from tests.amqp.limited_queues import drain, fill, limited, ready, seconds_until
from tests.amqp.raw import Client
from tests.appliance import Appliance
from tests.conftest import Make
from tests.control.test_real_broker import control


def ask(broker: Appliance, verb: str, **arguments: Any) -> Any:
    """One answer of the control socket."""

    async def answer() -> Any:
        async with control(broker) as door:
            return await door.call(verb, **arguments)

    return asyncio.run(answer())


def pause(broker: Appliance, queue: str) -> bool:
    return bool(ask(broker, "queue.pause", vhost="/", name=queue)["changed"])


def resume(broker: Appliance, queue: str) -> bool:
    return bool(ask(broker, "queue.resume", vhost="/", name=queue)["changed"])


def row(broker: Appliance, queue: str) -> dict[str, Any]:
    found: dict[str, Any] = ask(broker, "item", noun="queues", vhost="/", name=queue)
    return found


def test_a_paused_queue_takes_messages_and_gives_none(
    shared_broker: Appliance, client: Client, other: Client
) -> None:
    queue = limited(client)
    other.call(1, "basic.consume", queue=queue, no_ack=True)
    assert pause(shared_broker, queue)
    assert set(fill(client, queue, b"1", b"2", delivery_mode=2).values()) == {"basic.ack"}
    assert client.get(1, queue) is None
    assert ready(client, queue) == 2
    other.fence(1)
    found = row(shared_broker, queue)
    assert (found["state"], found["trouble"], found["messages_ready"]) == ("paused", "paused", 2)
    assert resume(shared_broker, queue)
    assert [message.body for message in other.expect_messages(2, 1)] == [b"1", b"2"]
    assert row(shared_broker, queue)["state"] == "running"


def test_pausing_twice_changes_nothing(shared_broker: Appliance, client: Client) -> None:
    queue = limited(client)
    assert not resume(shared_broker, queue)
    assert pause(shared_broker, queue)
    assert not pause(shared_broker, queue)
    assert resume(shared_broker, queue)
    fill(client, queue, b"x")
    assert drain(client, queue) == [b"x"]


def test_what_is_out_may_be_settled_and_what_comes_back_waits(
    shared_broker: Appliance, client: Client, other: Client
) -> None:
    queue = limited(client)
    other.call(1, "basic.qos", prefetch_count=3)
    other.call(1, "basic.consume", queue=queue)
    fill(client, queue, b"1", b"2", b"3", b"4")
    other.expect_messages(3, 1)
    pause(shared_broker, queue)
    other.send_method(1, "basic.ack", delivery_tag=1)
    other.send_method(1, "basic.reject", delivery_tag=3, requeue=True)
    other.send_method(1, "basic.reject", delivery_tag=2, requeue=False)
    other.fence(1)
    assert ready(client, queue) == 2
    resume(shared_broker, queue)
    again = other.expect_messages(2, 1)
    assert [(got.body, got.redelivered) for got in again] == [(b"3", True), (b"4", False)]


def test_a_person_may_look_into_a_paused_queue(shared_broker: Appliance, client: Client) -> None:
    queue = limited(client)
    pause(shared_broker, queue)
    fill(client, queue, b"x")
    seen = ask(shared_broker, "queue.get", vhost="/", name=queue)
    assert [message["payload"] for message in seen] == [b"x"]
    assert client.get(1, queue) is None
    assert ready(client, queue) == 1


def test_consumers_that_come_to_a_paused_queue_wait_with_the_rest(
    shared_broker: Appliance, client: Client, other: Client
) -> None:
    queue = limited(client, x_single_active_consumer=True)
    pause(shared_broker, queue)
    fill(client, queue, b"x")
    other.call(1, "basic.consume", queue=queue, no_ack=True)
    other.fence(1)
    resume(shared_broker, queue)
    assert other.expect_message(channel=1).body == b"x"


def test_limits_hold_while_a_queue_is_paused(
    shared_broker: Appliance, client: Client, other: Client
) -> None:
    dead = limited(client)
    letters = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": dead}
    short = limited(client, x_max_length=1, **letters)
    brief = limited(client, x_message_ttl=100, **letters)
    at_once = limited(client, **letters)
    for queue in (short, brief, at_once):
        other.call(1, "basic.consume", queue=queue)
        pause(shared_broker, queue)
    fill(client, short, b"goes", b"stays")
    fill(client, brief, b"expires")
    fill(client, at_once, b"never waited", expiration="0")
    seconds_until(lambda: ready(client, dead) == 3)
    assert sorted(drain(client, dead)) == [b"expires", b"goes", b"never waited"]
    assert ready(client, short) == 1
    other.fence(1)


@pytest.mark.parametrize("mode", ["ack", "ack-lean"])
def test_a_confirm_on_ack_waits_until_the_queue_is_resumed(
    shared_broker: Appliance, client: Client, other: Client, mode: str
) -> None:
    queue = limited(client, x_confirm_on=mode)
    other.call(1, "basic.consume", queue=queue)
    pause(shared_broker, queue)
    client.call(1, "confirm.select")
    client.publish(1, "", queue, b"x")
    client.fence(1)
    other.fence(1)
    resume(shared_broker, queue)
    got = other.expect_message(channel=1)
    other.send_method(1, "basic.ack", delivery_tag=got.tag)
    assert client.expect_confirms(1, 1) == {1: "basic.ack"}


def test_a_priority_queue_goes_on_with_its_highest(
    shared_broker: Appliance, client: Client, other: Client
) -> None:
    queue = limited(client, x_max_priority=5)
    other.call(1, "basic.consume", queue=queue, no_ack=True)
    pause(shared_broker, queue)
    client.send(
        b"".join(raw.publish(1, "", queue, b"%d" % level, priority=level) for level in (1, 5, 3))
    )
    assert ready(client, queue) == 3
    resume(shared_broker, queue)
    assert [message.body for message in other.expect_messages(3, 1)] == [b"5", b"3", b"1"]


def test_a_paused_stream_keeps_its_readers_waiting(
    shared_broker: Appliance, client: Client
) -> None:
    stream = streams.declare(client)
    streams.fill(client, stream, b"0")
    reader = streams.Reader(client, stream, x_stream_offset="first")
    assert [message.body for message in reader.take(1)] == [b"0"]
    pause(shared_broker, stream)
    streams.fill(client, stream, b"1")
    late = streams.Reader(client, stream, x_stream_offset="first")
    assert reader.is_at_end()
    assert late.is_at_end()
    assert row(shared_broker, stream)["state"] == "paused"
    resume(shared_broker, stream)
    assert [message.body for message in client.expect_messages(3)].count(b"1") == 2


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_pauses_hold_over_a_restart(make_broker: Make, end: str) -> None:
    broker = make_broker()
    declared = {"durable": True}
    with Client.open((broker.host, broker.amqp_port)) as client:
        for queue in ("paused", "resumed", "again"):
            client.call(1, "queue.declare", queue=queue, **declared)
            fill(client, queue, queue.encode(), delivery_mode=2)
            pause(broker, queue)
        resume(broker, "resumed")
        client.call(1, "queue.delete", queue="again")
        client.call(1, "queue.declare", queue="again", **declared)
        fill(client, "again", b"again", delivery_mode=2)
        client.call(1, "queue.declare", queue="transient")
        pause(broker, "transient")
    if end == "kill":
        broker.kill()
    else:
        broker.stop()
    broker.start()
    with Client.open((broker.host, broker.amqp_port)) as client:
        client.call(1, "queue.declare", queue="transient")
        states = {queue: row(broker, queue)["state"] for queue in ("paused", "resumed", "again")}
        assert states == {"paused": "paused", "resumed": "running", "again": "running"}
        assert row(broker, "transient")["state"] == "running"
        assert client.get(1, "paused") is None
        assert drain(client, "resumed") == [b"resumed"]
        resume(broker, "paused")
        assert drain(client, "paused") == [b"paused"]


def test_a_journal_that_is_rewritten_keeps_a_pause(make_broker: Make) -> None:
    broker = make_broker()
    with Client.open((broker.host, broker.amqp_port)) as client:
        for queue in ("paused", "running"):
            client.call(1, "queue.declare", queue=queue, durable=True)

    async def many() -> None:
        async with control(broker) as door:
            for verb in ("queue.pause", "queue.resume") * 150:
                await door.call(verb, vhost="/", name="running")
            await door.call("queue.pause", vhost="/", name="paused")

    asyncio.run(many())
    journal = next(broker.data_dir.glob("vhosts/*/definitions.journal"))
    before = journal.stat().st_size
    for _ in range(2):
        broker.stop()
        broker.start()
        assert journal.stat().st_size < before / 4
        assert row(broker, "paused")["state"] == "paused"
        assert row(broker, "running")["state"] == "running"

"""Moves, copies and replays to very many queues: the message is given to them in several turns, and
all is as if it were one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from management.broker_client import BrokerClient
from tests.amqp import raw, streams
from tests.appliance import Appliance
from tests.conftest import Make
from tests.control.replaying import replay
from tests.control.test_real_broker import control
from tests.control.transferring import start, until

COUNT = 1200
"""Queues behind the exchange: more than get a message at once."""
MANY = 2500
LONG = {"long": "0" * 20_000}
"""Of these headers, which each of MANY queues stores on its own, `tail_memory` holds a fiftieth:
something can be done before all of them have the message."""
LARGE = bytes(range(256)) * 200


@pytest.fixture
def broker(make_broker: Make) -> Appliance:
    return make_broker(tail_memory=1024 * 1024)


@pytest.fixture
def client(broker: Appliance) -> Iterator[raw.Client]:
    with opened(broker) as client:
        yield client


@pytest.fixture
def beside(broker: Appliance) -> Iterator[raw.Client]:
    with opened(broker) as client:
        yield client


def opened(broker: Appliance) -> raw.Client:
    return raw.Client.open((broker.host, broker.amqp_port), timeout=60)


def declare(client: raw.Client, count: int = COUNT, **arguments: dict[str, Any]) -> None:
    """A durable fanout exchange with these queues, some with `arguments`, and a source."""
    client.call(1, "exchange.declare", exchange="many", type="fanout", durable=True)
    for number in range(count):
        name = f"q{number}"
        given = arguments.get(name, {})
        client.send(
            raw.method(1, "queue.declare", queue=name, durable=True, arguments=given, nowait=True)
            + raw.method(1, "queue.bind", queue=name, exchange="many", nowait=True)
        )
    client.call(1, "queue.declare", queue="source", durable=True)


def fill(client: raw.Client, *bodies: bytes, queue: str = "source", **more: Any) -> None:
    """Persistent messages, on the disk."""
    client.call(2, "channel.open")
    client.call(2, "confirm.select")
    for body in bodies:
        client.publish(2, "", queue, body, delivery_mode=2, **more)
    client.expect_confirms(2, len(bodies))
    client.call(2, "channel.close")


def count_of(client: raw.Client, name: str) -> int:
    return client.call(1, "queue.declare", queue=name, passive=True).message_count


def counts(client: raw.Client, count: int = COUNT) -> list[int]:
    """How many messages are ready in each."""
    return [count_of(client, f"q{number}") for number in range(count)]


def held(client: raw.Client, name: str) -> list[tuple[bytes, bool]]:
    """All messages of a queue, which are taken out: body, and whether it is redelivered."""
    found = []
    while (got := client.get(1, name, no_ack=True)) is not None:
        found.append((got.body, got.redelivered))
    return found


async def begin(asking: BrokerClient, mode: str = "move") -> int:
    started = await start(asking, mode, "source", "many", target_type="exchange")
    return int(started["id"])


async def finished(broker: Appliance, mode: str = "move") -> Any:
    async with control(broker) as asking:
        return await until(asking, await begin(asking, mode), "finished", "failed", "stopped")


async def state_of(asking: BrokerClient, id: int) -> Any:
    (row,) = [each for each in await asking.call("transfer.list") if each["id"] == id]
    return row


def under_way(beside: raw.Client) -> None:
    """Waits until the first queue has the first message: nearly always, others do not have it then.
    `beside` has published nothing, so that it is read while `tail_memory` is full."""
    while count_of(beside, "q0") == 0:
        pass


@pytest.mark.parametrize("mode", ["move", "copy"])
async def test_each_queue_gets_each_once_and_in_order(
    broker: Appliance, client: raw.Client, mode: str
) -> None:
    declare(client)
    wanted = [b"0", LARGE, b"2"]
    fill(client, *wanted)
    row = await finished(broker, mode)
    assert (row["state"], row["handed_over"]) == ("finished", 3)
    for number in range(COUNT):
        assert held(client, f"q{number}") == [(body, False) for body in wanted]
    left = [] if mode == "move" else [(body, False) for body in wanted]
    assert held(client, "source") == left


async def test_a_shared_body_stays_while_its_message_is_copied(
    broker: Appliance, client: raw.Client, beside: raw.Client
) -> None:
    declare(client, MANY)
    client.call(1, "queue.declare", queue="beside", durable=True)
    for name in ("source", "beside"):
        client.call(1, "queue.bind", queue=name, exchange="amq.fanout")
    client.publish(1, "amq.fanout", "", LARGE, headers=LONG)
    client.fence(1)
    assert [body for body, _ in held(client, "beside")] == [LARGE]
    async with control(broker) as asking:
        id = await begin(asking, "copy")
        under_way(beside)
        # No record refers to the body any more but those that the copy makes.
        assert [body for body, _ in held(beside, "source")] == [LARGE]
        await until(asking, id, "finished")
    for number in (0, 1, MANY // 2, MANY - 1):
        assert [body for body, _ in held(client, f"q{number}")] == [LARGE]


async def test_a_replay_reaches_all(broker: Appliance, client: raw.Client) -> None:
    declare(client)
    stream = streams.declare(client)
    wanted = [b"0", LARGE, b"2"]
    streams.fill(client, stream, *wanted)
    async with control(broker) as asking:
        started = await replay(asking, stream, "many", target_type="exchange")
        row = await until(asking, started["id"], "finished", "failed")
    assert (row["state"], row["handed_over"]) == ("finished", 3)
    assert counts(client) == [3] * COUNT
    for number in (0, COUNT - 1):
        got = [client.get(1, f"q{number}", no_ack=True) for _ in wanted]
        assert [each.body for each in got if each is not None] == wanted
        assert [
            each.properties["headers"]["x-replay-offset"] for each in got if each is not None
        ] == [0, 1, 2]


async def test_a_full_queue_holds_it_up_and_no_other_gets_it(
    broker: Appliance, client: raw.Client
) -> None:
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    declare(client, q700=full)
    fill(client, b"first", b"second")
    async with control(broker) as asking:
        id = await begin(asking)
        row = await until(asking, id, "blocked")
        assert "queue 'q700' is full" in row["reason"]
        assert sum(counts(client)) == COUNT
        assert count_of(client, "source") == 1
        assert held(client, "q700") == [(b"first", False)]
        await until(asking, id, "finished")
    assert sum(counts(client)) == 2 * COUNT - 1
    assert held(client, "q700") == [(b"second", False)]


async def test_a_queue_that_fills_meanwhile_gets_it_later_and_the_others_once(
    broker: Appliance, client: raw.Client
) -> None:
    """Two moves ask the last queue at a time, and one of them fills it."""
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    declare(client, **{f"q{COUNT - 1}": full})
    client.call(1, "queue.declare", queue="other", durable=True)
    fill(client, b"first")
    fill(client, b"second", queue="other")
    async with control(broker) as asking:
        ids = [
            (await start(asking, "move", name, "many", target_type="exchange"))["id"]
            for name in ("source", "other")
        ]
        while {(await state_of(asking, id))["state"] for id in ids} != {"finished", "blocked"}:
            pass
        last = held(client, f"q{COUNT - 1}")
        for id in ids:
            await until(asking, id, "finished")
    last += held(client, f"q{COUNT - 1}")
    assert sorted(last) == [(b"first", False), (b"second", False)]
    assert counts(client, COUNT - 1) == [2] * (COUNT - 1)
    assert count_of(client, "source") == count_of(client, "other") == 0


async def test_an_exchange_without_a_queue_holds_it_up_until_there_are_many(
    broker: Appliance, client: raw.Client
) -> None:
    declare(client)
    client.call(1, "exchange.declare", exchange="none", type="fanout")
    fill(client, b"x")
    async with control(broker) as asking:
        id = (await start(asking, "move", "source", "none", target_type="exchange"))["id"]
        await until(asking, id, "blocked")
        client.call(1, "exchange.bind", destination="many", source="none")
        await until(asking, id, "finished")
    assert counts(client) == [1] * COUNT


@pytest.mark.parametrize("mode", ["move", "copy"])
@pytest.mark.parametrize("is_kill", [True, False])
async def test_an_end_of_the_broker_meanwhile_loses_none_and_marks_doubles(
    broker: Appliance, client: raw.Client, beside: raw.Client, mode: str, is_kill: bool
) -> None:
    """Also a clean one, if memory does not suffice to give it to all of them at once."""
    declare(client, MANY)
    fill(client, b"0", b"1", headers=LONG)
    async with control(broker) as asking:
        id = await begin(asking, mode)
        under_way(beside)
    broker.end(kill=is_kill)
    broker.start()
    async with control(broker) as asking:
        await until(asking, id, "finished")
    with opened(broker) as again:
        for number in range(MANY):
            found = held(again, f"q{number}")
            assert {body for body, _ in found} == {b"0", b"1"}
            unmarked = [body for body, redelivered in found if not redelivered]
            assert len(unmarked) == len(set(unmarked))
        assert len(held(again, "source")) == (0 if mode == "move" else 2)


@pytest.mark.parametrize("mode", ["move", "copy"])
async def test_a_clean_restart_meanwhile_doubles_none(make_broker: Make, mode: str) -> None:
    broker = make_broker()
    with opened(broker) as client:
        declare(client, MANY)
        fill(client, b"0", b"1")
        async with control(broker) as asking:
            id = await begin(asking, mode)
            while count_of(client, "q0") == 0:
                pass
    broker.stop()
    broker.start()
    async with control(broker) as asking:
        row = await until(asking, id, "finished")
    assert row["handed_over"] == 2
    with opened(broker) as again:
        for number in range(MANY):
            assert held(again, f"q{number}") == [(b"0", False), (b"1", False)]


FIVE = [b"%d" % number for number in range(5)]


async def test_a_pause_meanwhile_waits_for_the_queues_that_do_not_have_it_yet(
    broker: Appliance, client: raw.Client, beside: raw.Client
) -> None:
    declare(client, MANY)
    fill(client, *FIVE, headers=LONG)
    async with control(broker) as asking:
        id = await begin(asking)
        under_way(beside)
        await asking.call("transfer.pause", id=id)
        handed = 0
        while not handed or counts(client, MANY) != [handed] * MANY:
            handed = (await state_of(asking, id))["handed_over"]
        row = await state_of(asking, id)
        assert (row["state"], row["handed_over"]) == ("paused", handed)
        assert count_of(client, "source") == 5 - handed
        await asking.call("transfer.resume", id=id)
        await until(asking, id, "finished")
    for number in (0, MANY - 1):
        assert held(client, f"q{number}") == [(body, False) for body in FIVE]


async def test_a_stop_meanwhile_waits_for_the_queues_that_do_not_have_it_yet(
    broker: Appliance, client: raw.Client, beside: raw.Client
) -> None:
    declare(client, MANY)
    fill(client, *FIVE, headers=LONG)
    async with control(broker) as asking:
        id = await begin(asking)
        under_way(beside)
        await asking.call("transfer.delete", id=id)
        handed = (await until(asking, id, "stopped"))["handed_over"]
    assert handed >= 1
    assert counts(client, MANY) == [handed] * MANY
    assert held(client, "source") == [(body, False) for body in FIVE[handed:]]


async def test_a_source_that_is_deleted_meanwhile_ends_it(
    broker: Appliance, client: raw.Client, beside: raw.Client
) -> None:
    declare(client, MANY)
    fill(client, *FIVE, headers=LONG)
    async with control(broker) as asking:
        id = await begin(asking)
        under_way(beside)
        beside.call(1, "queue.delete", queue="source")
        row = await until(asking, id, "failed", "finished")
    assert row["state"] == "failed"
    assert held(client, "q0")[0] == (b"0", False)


async def test_queues_that_are_deleted_meanwhile_are_left_out(
    broker: Appliance, client: raw.Client, beside: raw.Client
) -> None:
    declare(client, MANY)
    fill(client, b"0", b"1", headers=LONG)
    async with control(broker) as asking:
        id = await begin(asking)
        under_way(beside)
        for number in range(MANY - 5, MANY):
            beside.call(1, "queue.delete", queue=f"q{number}")
        row = await until(asking, id, "finished")
    assert row["handed_over"] == 2
    assert counts(client, MANY - 5) == [2] * (MANY - 5)


async def test_a_confirm_waits_for_the_acks_of_all(broker: Appliance, client: raw.Client) -> None:
    count = 600
    on_ack = {"x-confirm-on": "ack"}
    declare(client, count, **{f"q{number}": on_ack for number in range(count)})
    client.call(1, "queue.delete", queue="source")
    client.call(1, "queue.declare", queue="source", durable=True, arguments=on_ack)
    with opened(broker) as publisher:
        publisher.call(1, "confirm.select")
        publisher.publish(1, "", "source", b"x")
        publisher.fence(1)
        await finished(broker)
        for number in range(count - 1):
            got = client.get(1, f"q{number}")
            assert got is not None
            client.send(raw.method(1, "basic.ack", delivery_tag=got.tag))
        client.fence(1)
        publisher.fence(1)  # no confirm comes before
        last = client.get(1, f"q{count - 1}")
        assert last is not None
        client.send(raw.method(1, "basic.ack", delivery_tag=last.tag))
        publisher.expect("basic.ack", 1)


async def test_what_a_consumer_takes_while_its_queues_are_found_is_the_consumers(
    broker: Appliance, client: raw.Client
) -> None:
    declare(client)
    fill(client, *(b"%d" % number for number in range(20)))
    async with control(broker) as asking:
        id = await begin(asking)
        taken = []
        while (await state_of(asking, id))["state"] != "finished":
            got = client.get(1, "source", no_ack=True)
            taken += [got.body] if got is not None else []
        row = await state_of(asking, id)
    taken += [body for body, _ in held(client, "source")]
    moved = [body for body, _ in held(client, "q5")]
    assert moved == [body for body, _ in held(client, f"q{COUNT - 1}")]
    assert sorted(taken + moved) == sorted(b"%d" % number for number in range(20))
    assert row["handed_over"] == len(moved)

"""Long lists over the control socket: the broker builds rows as the reader takes them."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.schema.control_schema import List
from broker.server.app import Broker
from broker.server.control.connection_rows import Connections
from broker.server.control.consumer_rows import Consumers
from broker.server.control.queue_fields import QueueRows
from broker.server.control.views import View
from management.broker_client import BrokerClient, BrokerError
from tests import inside
from tests.appliance import Appliance
from tests.control.test_real_broker import connect
from tests.inside import configure, put_user

LONG = 1_234
SLICE = 100


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the queues whose rows were built."""
    names: list[str] = []
    build = QueueRows.build

    def noted(rows: QueueRows, queue: Any) -> dict[str, Any]:
        names.append(queue.name)
        return build(rows, queue)

    monkeypatch.setattr(QueueRows, "build", noted)
    return names


def declare(broker: Broker, count: int) -> None:
    for number in range(count):
        broker.vhosts["/"].declare_queue(f"q{number:04}")


def names(items: list[dict[str, Any]]) -> list[str]:
    return [row["name"] for row in items]


def open_lists(broker: Broker) -> int:
    return sum(len(session.lists) for session in broker.control.sessions)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"sort": "name", "sort_reverse": True},
        {"name": "7"},
        {"columns": ["name"]},
        {"sort": "messages"},
    ],
)
async def test_the_slices_together_are_the_list(
    broker: Broker, client: BrokerClient, more: dict[str, Any]
) -> None:
    declare(broker, 6_000 if "name" in more else LONG)
    whole = await client.call("list", noun="queues", **more)
    answers = [answer async for answer in client.listed(noun="queues", **more)]
    assert len(answers) > 5
    assert max(len(answer["items"]) for answer in answers) == SLICE
    assert names([row for answer in answers for row in answer["items"]]) == names(whole["items"])
    assert answers[0]["item_count"] == whole["item_count"]
    assert open_lists(broker) == 0


async def test_a_list_of_500_rows_comes_in_one_answer(broker: Broker, client: BrokerClient) -> None:
    declare(broker, 500)
    (answer,) = [answer async for answer in client.listed(noun="queues")]
    assert len(answer["items"]) == 500
    assert open_lists(broker) == 0


async def test_no_row_is_built_before_it_is_asked_for(
    broker: Broker, client: BrokerClient, built: list[str]
) -> None:
    declare(broker, LONG)
    async with contextlib.aclosing(client.listed(noun="queues")) as answers:
        await anext(answers)
        await client.call("whoami")
        assert len(built) == SLICE
        await anext(answers)
        await client.call("whoami")
        assert len(built) == 2 * SLICE


async def test_a_slice_of_large_rows_is_shorter(broker: Broker, client: BrokerClient) -> None:
    for number in range(600):
        broker.vhosts["/"].declare_queue(f"q{number:03}", arguments={"note": "x" * 20_000})
    answers = [answer async for answer in client.listed(noun="queues", columns=["arguments"])]
    assert max(len(answer["items"]) for answer in answers) < 20
    assert sum(len(answer["items"]) for answer in answers) == 600


async def test_a_reader_that_stops_leaves_no_list_open(
    broker: Broker, client: BrokerClient
) -> None:
    declare(broker, LONG)
    async with contextlib.aclosing(client.listed(noun="queues")) as answers:
        await anext(answers)
        assert open_lists(broker) == 1
    await client.call("whoami")
    assert open_lists(broker) == 0


async def test_a_reader_that_goes_before_the_first_answer_leaves_no_list_open(
    broker: Broker, client: BrokerClient
) -> None:
    declare(broker, LONG)
    await client.call("whoami")
    asked = asyncio.ensure_future(anext(client.listed(noun="queues")))
    await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    for _ in range(3):
        await client.call("list", noun="queues", columns=["name"])
    assert open_lists(broker) == 0


async def test_a_list_does_not_go_on_in_another_life_of_the_broker(
    broker: Broker, client: BrokerClient
) -> None:
    declare(broker, LONG)
    reading = client.listed(noun="queues")
    await anext(reading)
    before = client.connections
    (session,) = broker.control.sessions
    session.abort()
    with contextlib.suppress(BrokerError):
        await client.call("whoami")  # notices that the connection is gone
    await client.call("whoami")
    assert client.connections == before + 1
    with pytest.raises(BrokerError) as caught:
        await anext(reading)
    assert "in the middle of a list" in caught.value.reason


async def test_queues_may_come_and_go_while_a_list_is_read(
    broker: Broker, client: BrokerClient
) -> None:
    declare(broker, LONG)
    seen = []
    async for answer in client.listed(noun="queues"):
        seen += names(answer["items"])
        if len(seen) == SLICE:
            for number in range(50, 400):
                broker.vhosts["/"].delete_queue(f"q{number:04}")
            broker.vhosts["/"].declare_queue("a new one")
    assert len(seen) == len(set(seen))
    assert set(seen) >= set(broker.vhosts["/"].queues) - {"a new one"}


async def test_rights_that_are_taken_away_end_the_list(
    broker: Broker, client: BrokerClient
) -> None:
    declare(broker, LONG)
    put_user(broker, "reader", "management")
    for take_away in (
        lambda: broker.access.delete_permission("reader", "/"),
        lambda: broker.access.delete_user("reader"),
    ):
        async with contextlib.aclosing(client.listed(as_user="reader", noun="queues")) as reading:
            assert len((await anext(reading))["items"]) == SLICE
            take_away()
            with pytest.raises(BrokerError) as caught:
                await anext(reading)
            assert caught.value.status == 401
        await client.call("whoami")
        assert open_lists(broker) == 0
        if broker.access.users.get("reader") is not None:
            broker.access.put_permission("reader", "/", "", "", "")


async def test_a_list_belongs_to_who_asked_for_it(broker: Broker, client: BrokerClient) -> None:
    declare(broker, LONG)
    put_user(broker, "other", "administrator", vhosts=())
    await client.call("list", noun="queues", slices=7)
    with pytest.raises(BrokerError) as caught:
        await client.call("list.more", as_user="other", list=7)
    assert caught.value.status == 404


async def test_one_list_too_many_is_refused(broker: Broker, client: BrokerClient) -> None:
    declare(broker, LONG)
    configure(broker, lists_read_max=2)
    for number in (1, 2):
        await client.call("list", noun="queues", slices=number)
    with pytest.raises(BrokerError) as caught:
        await client.call("list", noun="queues", slices=3)
    assert (caught.value.status, caught.value.error) == (503, "busy")
    assert "lists_read_max" in caught.value.reason
    await client.call("list.end", list=1)
    await client.call("list", noun="queues", slices=3)


async def test_one_user_reads_a_quarter_of_the_lists(broker: Broker, client: BrokerClient) -> None:
    declare(broker, LONG)
    for user in ("reader", "other"):
        put_user(broker, user, "management")
    configure(broker, lists_read_max=8)
    for number in (1, 2):
        await client.call("list", as_user="reader", noun="queues", slices=number)
    with pytest.raises(BrokerError) as caught:
        await client.call("list", as_user="reader", noun="queues", slices=3)
    assert (caught.value.status, caught.value.error) == (503, "busy")
    assert "this user reads 2 lists already" in caught.value.reason
    await client.call("list", as_user="other", noun="queues", slices=3)
    await client.call("list.end", list=1)
    await client.call("list", as_user="reader", noun="queues", slices=4)


def no_consumer(*_: object) -> None:
    """Takes deliveries, of which there are none."""


@pytest.mark.parametrize("noun", ["channels", "consumers", "bindings", "queues"])
async def test_what_goes_while_a_list_is_read_does_not_break_it(
    shared_broker: Appliance, noun: str
) -> None:
    client = BrokerClient(shared_broker.control_socket)
    first = connect(shared_broker).channel()
    name = first.queue_declare("", exclusive=True).method.queue
    for number in range(620):
        if noun == "channels":
            first.connection.channel()
        elif noun == "consumers":
            first.basic_consume(name, no_consumer, consumer_tag=f"c{number}")
        elif noun == "bindings":
            first.queue_bind(name, "amq.topic", f"key.{number}")
        else:
            first.queue_declare(f"in-slices.{number}", exclusive=True)
    whole = await client.call("list", noun=noun)
    async with contextlib.aclosing(client.listed(noun=noun)) as answers:
        found = (await anext(answers))["items"]
        first.connection.close()
        async for answer in answers:
            found += answer["items"]
    await client.close()
    assert len(found) == whole["item_count"]


@pytest.mark.parametrize(
    ("noun", "args"),
    [
        (Consumers, List(noun="consumers")),
        (Connections, List(noun="connections")),
        (Connections, List(noun="connections", vhost="other")),
    ],
    ids=["queues without consumers", "connections of others", "connections to other vhosts"],
)
async def test_what_a_list_leaves_out_is_passed_over_in_short_steps(
    broker: Broker, noun: type[View], args: List
) -> None:
    """A user who sees none of 100,000 connections must not hold the loop with them."""
    declare(broker, LONG)
    for _ in range(LONG):
        await inside.connect(broker, "other")
    caller = SimpleNamespace(
        name="nobody",
        reach=lambda *_: list(broker.vhosts.values()),
        sight=SimpleNamespace(
            of_node=False,
            of_connection=lambda owner: False,
            of_every=lambda noun: False,
            of_noun=lambda noun, place: False,
        ),
    )
    steps = 0

    async def pace() -> None:
        nonlocal steps
        steps += 1

    assert await noun(broker).everything(cast(Any, caller), args, cast(Any, pace)) == []
    assert steps >= LONG // 32

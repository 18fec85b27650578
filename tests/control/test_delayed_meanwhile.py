"""Delayed messages that are looked at and cancelled while others do the same."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest

from broker.schema.control_schema import (
    ExchangeDelayed,
    ExchangeDelayedCancel,
    VHostDelete,
    VHostPut,
)
from broker.server.app import Broker
from broker.server.control.admin_verbs import vhost_delete, vhost_put
from broker.server.control.delayed_verbs import exchange_delayed, exchange_delayed_cancel
from broker.server.control.requests import Caller, Request, RequestError
from tests.amqp import raw
from tests.inside import Peer, connect, in_memory, running, until

LATER = 60_000


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    with in_memory() as directory:
        async with running(directory) as found:
            yield found


@pytest.fixture
async def client(broker: Broker) -> Peer:
    """With the exchange `later`, which routes by key to the queues `a` and `b`."""
    client = await connect(broker, "guest")
    kind = {"x-delayed-type": "direct"}
    client.call(
        1,
        "exchange.declare",
        exchange="later",
        type="x-delayed-message",
        durable=True,
        arguments=kind,
    )
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    for queue in ("a", "b"):
        client.call(1, "queue.declare", queue=queue, durable=True, arguments=full)
        client.call(1, "queue.bind", queue=queue, exchange="later", routing_key=queue)
    await client.fence()
    return client


def publish(client: Peer, key: str, body: bytes, delay: int) -> None:
    headers = {"x-delay": delay}
    client.feed(raw.publish(1, "later", key, body, delivery_mode=2, headers=headers))


def asked(broker: Broker, arguments: Any) -> Request[Any]:
    return Request(broker, None, Caller(broker, None), arguments)  # type: ignore[arg-type]


async def listed(broker: Broker) -> list[dict[str, Any]]:
    found = await exchange_delayed(asked(broker, ExchangeDelayed(vhost="/", name="later")))
    return list(found["items"])


async def test_of_two_who_cancel_a_message_one_is_refused_and_no_other_message_goes(
    broker: Broker, client: Peer
) -> None:
    publish(client, "a", b"cancelled", LATER)
    publish(client, "a", b"stays", LATER + 1)
    await client.fence()
    holding = broker.vhosts["/"].exchanges["later"].holding
    first, second = await listed(broker)
    cancel = ExchangeDelayedCancel(vhost="/", name="later", id=first["id"])
    answers = await asyncio.gather(
        *(exchange_delayed_cancel(asked(broker, cancel)) for _ in range(2)),
        return_exceptions=True,
    )
    assert sum(isinstance(one, RequestError) and one.status == 404 for one in answers) == 1
    assert (holding.messages, holding.store.total) == (1, 1)
    assert await listed(broker) == [second]


async def test_a_list_shows_nothing_in_the_place_of_messages_that_others_cancelled(
    broker: Broker, client: Peer
) -> None:
    for _ in range(20):
        publish(client, "a", bytes(50), LATER)
    await client.fence()
    holding = broker.vhosts["/"].exchanges["later"].holding
    listing = holding.browse()
    entries = listing.next_entries(250)
    assert len(entries) == 20
    assert not listing.is_stale
    for entry in holding.browse().next_entries(250):
        holding.cancel(entry.segment, entry.position, entry.length, entry.body_length)
    publish(client, "b", b"\xff" * 5000, LATER)
    await client.fence()
    assert listing.is_stale
    assert [one["routing_key"] for one in await listed(broker)] == ["b"]


async def test_what_is_cancelled_while_its_index_is_written_is_not_delivered(
    broker: Broker, client: Peer
) -> None:
    count = 400
    holding = broker.vhosts["/"].exchanges["later"].holding
    holding.schedule.table_max = count
    for _ in range(count - 1):
        publish(client, "a", b"x", LATER)
    await client.fence()
    await until(lambda: broker.persister.has_written_all)
    entries = holding.browse().next_entries(count)
    # The last one has the index written.
    publish(client, "a", b"x", LATER)
    await client.fence()
    cancelled = 0
    for entry in entries[10:]:
        if holding.is_waiting(*entry.place):
            holding.cancel(entry.segment, entry.position, entry.length, entry.body_length)
            cancelled += 1
        await asyncio.sleep(0)
    await until(lambda: broker.persister.has_written_all)
    assert holding.schedule.runs
    assert holding.messages == count - cancelled
    assert len(await listed(broker)) == count - cancelled


@pytest.mark.parametrize("refused", [5, 128, 300])
async def test_messages_that_one_queue_refuses_keep_none_from_another(
    broker: Broker, client: Peer, refused: int
) -> None:
    queues = broker.vhosts["/"].queues
    await client.publish("a")
    await client.publish("b")
    holding = broker.vhosts["/"].exchanges["later"].holding
    for _ in range(refused):
        publish(client, "a", b"a", 1)
    publish(client, "b", b"first", 2)
    publish(client, "b", b"second", 3)
    await client.fence()
    await until(lambda: holding.messages_leaving == refused + 2)
    queues["b"].purge()
    await until(lambda: queues["b"].messages_ready == 1)
    await until(lambda: holding.messages_leaving == refused + 1)
    client.call(1, "basic.get", queue="b", no_ack=True)
    await until(lambda: b"first" in client.out)
    await until(lambda: holding.messages_leaving == refused)
    client.call(1, "basic.get", queue="b", no_ack=True)
    await until(lambda: b"second" in client.out)


async def test_a_message_for_very_many_queues_keeps_none_before_it_from_leaving(
    broker: Broker, client: Peer
) -> None:
    vhost = broker.vhosts["/"]
    for number in range(600):
        vhost.declare_queue(f"q{number}", durable=False)
        vhost.bind("later", f"q{number}", "queue", "wide")
    vhost.bind("later", "b", "queue", "wide")
    await client.publish("a")
    await client.publish("b")
    holding = vhost.exchanges["later"].holding
    for number, key in enumerate(("a", "wide")):
        publish(client, key, b"x", 1)
        await client.fence()
        await until(lambda wanted=number + 1: holding.messages_leaving == wanted)
    vhost.queues["a"].purge()
    await until(lambda: vhost.queues["a"].messages_ready == 1)
    await until(lambda: holding.messages_leaving == 1)
    vhost.queues["b"].purge()
    await until(lambda: holding.messages_leaving == 0)


async def test_a_deleted_vhost_with_such_an_exchange_is_freed(broker: Broker) -> None:
    await vhost_put(asked(broker, VHostPut(name="gone")))
    vhost = broker.vhosts["gone"]
    kept = weakref.ref(vhost)
    vhost.declare_exchange(
        "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"}
    )
    del vhost
    await vhost_delete(asked(broker, VHostDelete(name="gone")))

    def is_freed() -> bool:
        gc.collect()
        return kept() is None

    await until(is_freed)

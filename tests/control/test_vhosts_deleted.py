"""Deleting a vhost while others come: nobody opens it any more, and its name is free at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker.server.app import Broker
from broker.server.control import admin_verbs
from broker.server.control.messaging_verbs import close_connections_to
from broker.server.timers import Timer
from management.broker_client import BrokerClient
from tests.inside import Peer, connect, put_user, until


def as_it_closes(
    monkeypatch: pytest.MonkeyPatch, broker: Broker, client: Peer, happens: Callable[[], object]
) -> None:
    """What happens when the client's connection is closed, before those behind it are: as soon as
    it asks for the timer that bounds the client's answer."""
    later = broker.later

    def closing(seconds: float, callback: Any) -> Timer:
        if callback == client.session.drop:
            monkeypatch.undo()
            happens()
        return later(seconds, callback)

    monkeypatch.setattr(broker, "later", closing)


async def test_nobody_opens_a_vhost_while_its_connections_are_being_closed(
    broker: Broker, client: BrokerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.call("vhost.put", name="shop")
    one, two = await connect(broker, "anna", "shop"), await connect(broker, "bob", "shop")

    put_user(broker, "carl", vhosts=("shop",))
    comers: list[asyncio.Future[Peer]] = []

    as_it_closes(
        monkeypatch,
        broker,
        one,
        lambda: comers.append(asyncio.ensure_future(connect(broker, "carl", "shop"))),
    )
    await client.call("vhost.delete", name="shop")
    (comer,) = comers
    with pytest.raises(AssertionError, match="vhost shop not found"):
        await comer
    forced = (320, "CONNECTION_FORCED - vhost 'shop' is deleted")
    assert [await one.is_closed(), await two.is_closed()] == [forced, forced]
    await until(lambda: not broker.connections)


async def test_a_vhost_made_again_while_it_is_being_deleted_keeps_what_it_is_given(
    broker: Broker, client: BrokerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_user(broker, "anna", vhosts=())
    await client.call("vhost.put", name="shop")

    def put_again() -> None:
        broker.definitions.create_vhost("shop")
        broker.access.put_permission("anna", "shop", "a", "b", "c")
        comers.append(asyncio.ensure_future(connect(broker, "anna", "shop")))

    comers: list[asyncio.Future[Peer]] = []
    as_it_closes(monkeypatch, broker, await connect(broker, "bob", "shop"), put_again)
    await client.call("vhost.delete", name="shop")
    await comers[0]
    await until(lambda: len(broker.connections) == 1)
    assert broker.access.vhost_access("anna", "shop")
    assert [each.user for each in broker.connections.values()] == ["anna"]


async def test_connections_are_closed_to_the_last_when_who_asked_goes_away(broker: Broker) -> None:
    clients = [await connect(broker, "anna") for _ in range(5)]
    closing = asyncio.create_task(close_connections_to(broker, broker.vhosts["/"], "away"))
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert [await each.is_closed() for each in clients] == [(320, "CONNECTION_FORCED - away")] * 5


async def test_nothing_in_a_vhost_goes_before_the_disk_knows_that_the_vhost_does(
    broker: Broker, client: BrokerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in between, the next start would find the vhost without its messages."""
    await client.call("vhost.put", name="shop")
    vhost = broker.vhosts["shop"]
    vhost.declare_queue("orders")
    happened: list[str] = []
    synced, delete = broker.synced, vhost.delete

    async def written(records: bool = False) -> None:
        if not happened:
            happened.append("disk full")
            raise OSError(28, "No space left on device")
        happened.append("written")
        await synced(records)

    def deleted() -> Iterator[None]:
        happened.append("deleted")
        return delete()

    monkeypatch.setattr(admin_verbs, "TRY_AGAIN_S", 0)
    monkeypatch.setattr(broker, "synced", written)
    monkeypatch.setattr(vhost, "delete", deleted)
    await client.call("vhost.delete", name="shop")
    assert happened[:3] == ["disk full", "written", "deleted"]
    assert not vhost.queues

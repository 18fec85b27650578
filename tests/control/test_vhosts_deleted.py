"""Deleting a vhost while others come: nobody opens it any more, and its name is free at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

import pytest

from broker.server.control import admin_verbs
from broker.server.control.messaging_verbs import close_connections_to
from management.broker_client import BrokerClient
from tests.control.stand_in import Broker, Connection


def as_it_closes(connection: Connection, happens: Callable[[], object]) -> None:
    """What happens when the connection is closed, before those behind it are."""

    def close(code: int, text: str) -> None:
        Connection.close(connection, code, text)
        happens()

    connection.close = close  # type: ignore[method-assign]


async def test_nobody_opens_a_vhost_while_its_connections_are_being_closed(
    broker: Broker, client: BrokerClient
) -> None:
    await client.call("vhost.put", name="shop")
    one, two = broker.connect("anna", "shop"), broker.connect("bob", "shop")

    def come() -> None:
        with contextlib.suppress(KeyError):
            broker.connect("carl", "shop")

    as_it_closes(one, come)
    await client.call("vhost.delete", name="shop")
    assert one.closed == two.closed == (320, "vhost 'shop' is deleted")
    assert broker.connections == {}


async def test_a_vhost_made_again_while_it_is_being_deleted_keeps_what_it_is_given(
    broker: Broker, client: BrokerClient
) -> None:
    broker.add_user("anna", vhosts=())
    await client.call("vhost.put", name="shop")

    def put_again() -> None:
        broker.definitions.create_vhost("shop")
        broker.access.put_permission("anna", "shop", "a", "b", "c")
        broker.connect("anna", "shop")

    as_it_closes(broker.connect("bob", "shop"), put_again)
    await client.call("vhost.delete", name="shop")
    assert broker.access.vhost_access("anna", "shop")
    assert [each.user for each in broker.connections.values()] == ["anna"]


async def test_connections_are_closed_to_the_last_when_who_asked_goes_away(broker: Broker) -> None:
    connections = [broker.connect("anna") for _ in range(5)]
    closing = asyncio.create_task(close_connections_to(broker, broker.vhosts["/"], "away"))
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert [each.closed for each in connections] == [(320, "away")] * 5


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

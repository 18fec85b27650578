"""Whose consumers a user sees: rows have the names and addresses of clients, as connections do."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from broker.server.app import Broker
from management.broker_client import BrokerClient
from tests.inside import connect, publish, put_user


@pytest.fixture
async def consuming(broker: Broker) -> dict[str, str]:
    """Two users that consume from one queue; the names of their channels."""
    broker.vhosts["/"].declare_queue("shared")
    names = {}
    for user in ("one", "two"):
        put_user(broker, user, "management")
        peer = await connect(broker, user)
        await peer.consume("shared", f"tag-{user}", prefetch=1)
        names[user] = f"{peer.name} (1)"
    put_user(broker, "watch", "monitoring")
    return names


def tags(answer: dict[str, Any]) -> set[str]:
    assert answer["item_count"] == answer["total_count"] == len(answer["items"])
    return {row["consumer_tag"] for row in answer["items"]}


@pytest.mark.parametrize("more", [{}, {"queue": "shared"}, {"vhost": "/"}], ids=str)
async def test_a_list_has_those_of_the_users_own_connections(
    client: BrokerClient, consuming: dict[str, str], more: dict[str, Any]
) -> None:
    """Also where the list of another user is kept."""
    seen = {
        user: tags(await client.call("list", as_user=user, noun="consumers", **more))
        for user in ("one", "two", "watch", "guest", None)
    }
    both = {"tag-one", "tag-two"}
    assert seen == {
        "one": {"tag-one"},
        "two": {"tag-two"},
        "watch": both,
        "guest": both,
        None: both,
    }


@pytest.mark.parametrize(("user", "is_seen"), [("one", True), ("two", False), ("watch", True)])
async def test_another_users_consumer_is_followed_as_one_that_is_gone(
    client: BrokerClient, consuming: dict[str, str], user: str, is_seen: bool
) -> None:
    keys = [[consuming["one"], "tag-one"]]
    pushes = client.subscribe(as_user=user, topic="rows", noun="consumers", keys=keys)
    async with contextlib.aclosing(pushes):
        ((_, row),) = (await anext(pushes)).data["rows"]
    assert (row is not None) == is_seen


async def test_a_queues_detail_still_has_all_consumers(
    client: BrokerClient, consuming: dict[str, str]
) -> None:
    row = await client.call("item", as_user="one", noun="queues", vhost="/", name="shared")
    assert {each["consumer_tag"] for each in row["consumer_details"]} == {"tag-one", "tag-two"}


async def test_unacked_messages_do_not_name_connections_of_others(
    broker: Broker, client: BrokerClient, consuming: dict[str, str]
) -> None:
    publish(broker.vhosts["/"], "shared", 2)

    async def holders(user: str) -> dict[str, Any]:
        answer = await client.call("queue.unacked", as_user=user, vhost="/", name="shared")
        for row in answer["items"]:
            assert (row["channel_name"] is None) == (row["channel_details"] is None)
        return {row["consumer_tag"]: row["channel_name"] for row in answer["items"]}

    assert await holders("one") == {"tag-one": consuming["one"], "tag-two": None}
    assert await holders("watch") == {f"tag-{user}": consuming[user] for user in ("one", "two")}

"""Who may change what: the calls of `test_who_may.py` that are let through and change something,
and the permissions, owners and names that decide besides the tag. Each has a broker of its own."""

from __future__ import annotations

from typing import Any

import pytest

from broker.server.app import Broker
from management.broker_client import BrokerClient, BrokerError
from tests.control.test_who_may import BINDING, check, named, populate, rows
from tests.inside import connect


@pytest.fixture
async def people(broker: Broker) -> Broker:
    await populate(broker)
    return broker


@pytest.mark.parametrize(("verb", "tag"), rows(read_or_refused=False))
async def test_it_lets_each_change_through_by_tag(
    people: Broker, client: BrokerClient, verb: str, tag: str
) -> None:
    await check(people, client, verb, tag)


async def test_it_hides_vhosts_from_who_has_no_permission_there(
    people: Broker, client: BrokerClient
) -> None:
    await client.call("vhost.put", name="shop")
    await client.call("queue.declare", vhost="shop", name="secret")
    for noun in ("queues", "exchanges", "bindings"):
        found = await client.call("list", as_user="management", noun=noun)
        assert {row["vhost"] for row in found["items"]} == {"/"}
        seen = await client.call("list", as_user="administrator", noun=noun)
        assert {row["vhost"] for row in seen["items"]} == {"/", "shop"}
    for vhost in ("shop", "missing"):
        for verb, args in (
            ("item", {"noun": "queues", "name": "secret"}),
            ("list", {"noun": "queues"}),
            ("queue.purge", {"name": "secret"}),
            ("overview", {}),
        ):
            with pytest.raises(BrokerError) as caught:
                await client.call(verb, as_user="management", vhost=vhost, **args)
            assert caught.value.reason == "User not authorised to access virtual host"
    overview = await client.call("overview", as_user="management")
    assert "shop" not in str(overview)


async def test_an_overview_without_figures_counts_only_ones_own_connections(
    people: Broker, client: BrokerClient
) -> None:
    await connect(people, "administrator")
    people.stats.node.levels["connections"] = 1
    people.stats.vhost("/").levels["connections"] = 1
    seen = await client.call("overview", as_user="management", disable_stats=True)
    assert seen["object_totals"]["connections"] == 0
    seen = await client.call("overview", as_user="monitoring", disable_stats=True)
    assert seen["object_totals"]["connections"] == 1


async def test_a_channel_number_of_any_length_is_only_not_found(
    people: Broker, client: BrokerClient
) -> None:
    name = (await connect(people, "administrator")).name
    for number in ("9", "9" * 5_000, "٣"):
        with pytest.raises(BrokerError) as caught:
            await client.call("item", noun="channels", name=f"{name} ({number})")
        assert caught.value.status == 404


async def test_it_lists_the_vhosts_that_a_user_may_look_into(
    people: Broker, client: BrokerClient
) -> None:
    await client.call("vhost.put", name="shop")

    async def names(caller: str, user: str) -> set[str]:
        found = await client.call("list", as_user=caller, noun="vhosts", user=user)
        return {row["name"] for row in found["items"]}

    assert await names("monitoring", "monitoring") == {"/"}
    assert await names("administrator", "administrator") == {"/", "shop"}
    assert await names("administrator", "monitoring") == {"/"}
    with pytest.raises(BrokerError, match="Not administrator user"):
        await names("monitoring", "administrator")


async def test_it_lets_an_administrator_look_but_not_write_without_permission(
    people: Broker, client: BrokerClient
) -> None:
    people.access.delete_permission("administrator", "/")
    assert await client.call("item", as_user="administrator", noun="queues", vhost="/", name="q")
    for verb in ("queue.declare", "queue.delete", "queue.purge", "queue.get"):
        with pytest.raises(BrokerError) as caught:
            await client.call(verb, as_user="administrator", vhost="/", name="q")
        assert caught.value.status == 401
        assert "refused for user 'administrator'" in caught.value.reason


@pytest.mark.parametrize(
    ("verb", "args", "needed"),
    [
        ("queue.declare", {"name": "mine"}, ("mine", "", "")),
        ("queue.delete", {"name": "q"}, ("q", "", "")),
        ("queue.purge", {"name": "q"}, ("", "", "q")),
        ("queue.pause", {"name": "q"}, ("q", "", "")),
        ("queue.resume", {"name": "q"}, ("q", "", "")),
        ("queue.restart", {"name": "q"}, ("q", "", "")),
        ("queue.get", {"name": "q"}, ("", "", "q")),
        ("queue.peek", {"name": "q"}, ("", "", "q")),
        ("stream.read", {"name": "log"}, ("", "", "log")),
        ("exchange.delayed", {"name": "amq.topic"}, ("", "", "amq.topic")),
        ("exchange.delayed.cancel", {"name": "later"}, ("later", "", "")),
        ("transfer.start", {"name": "q", "mode": "move", "target": "log"}, ("", "log", "q")),
        ("transfer.preview", {"name": "q"}, ("", "", "q")),
        ("transfer.replay", {"name": "log", "target": "q"}, ("", "q", "log")),
        (
            "queue.declare",
            {"name": "mine", "arguments": {"x-dead-letter-exchange": "dead"}},
            ("mine", "dead", "mine"),
        ),
        ("exchange.declare", {"name": "x"}, ("x", "", "")),
        (
            "exchange.declare",
            {"name": "x", "arguments": {"alternate-exchange": "other"}},
            ("x", "other", "x"),
        ),
        ("exchange.delete", {"name": "later"}, ("later", "", "")),
        (
            "exchange.publish",
            {"name": "amq.default", "routing_key": "q", "payload": b""},
            ("", "amq.default", ""),
        ),
        (
            "binding.create",
            {"source": "amq.topic", "destination": "q", "destination_type": "queue"},
            ("", "q", "amq.topic"),
        ),
        (
            "binding.delete",
            {
                "source": "amq.topic",
                "destination": "q",
                "destination_type": "queue",
                "properties_key": "there",
            },
            ("", "q", "amq.topic"),
        ),
    ],
)
async def test_it_asks_for_the_permissions_that_amqp_asks_for(
    people: Broker,
    client: BrokerClient,
    verb: str,
    args: dict[str, Any],
    needed: tuple[str, str, str],
) -> None:
    args = {**args, **await named(people, client, verb)}
    exact = [f"^{name}$".replace(".", r"\.") if name else "" for name in needed]
    for missing in range(3):
        if not needed[missing]:
            continue
        patterns = ["" if place == missing else pattern for place, pattern in enumerate(exact)]
        people.access.put_permission("management", "/", *patterns)
        with pytest.raises(BrokerError) as caught:
            await client.call(verb, as_user="management", vhost="/", **args)
        assert caught.value.status == 401
        kind = ("configure", "write", "read")[missing]
        assert caught.value.reason.startswith(f"{kind} access to ")
    people.access.put_permission("management", "/", *exact)
    await client.call(verb, as_user="management", vhost="/", **args)


async def test_it_shows_connections_of_others_only_to_who_may_monitor(
    people: Broker, client: BrokerClient
) -> None:
    own = await connect(people, "management")
    for tag, count in (("management", 1), ("policymaker", 0), ("monitoring", 2)):
        for noun in ("connections", "channels"):
            found = await client.call("list", as_user=tag, noun=noun)
            assert len(found["items"]) == count, (tag, noun)
    for name in ("other", "none"):
        with pytest.raises(BrokerError, match="Not Found") as caught:
            await client.call("item", as_user="management", noun="connections", name=name)
        assert caught.value.status == 404
    with pytest.raises(BrokerError, match="Not administrator user"):
        await client.call("connection.close", as_user="monitoring", name="other")
    await client.call("connection.close", as_user="management", name=own.name)
    assert await own.is_closed() == (320, "CONNECTION_FORCED - Closed via management plugin")


async def test_it_keeps_routing_keys_from_who_may_not_publish_them(
    people: Broker, client: BrokerClient
) -> None:
    people.access.put_topic_permission("management", "/", "amq.topic", "^a", "^b")
    publish = {"vhost": "/", "name": "amq.topic", "payload": b""}
    await client.call("exchange.publish", as_user="management", routing_key="a.x", **publish)
    with pytest.raises(BrokerError, match="write access to topic 'c' in exchange"):
        await client.call("exchange.publish", as_user="management", routing_key="c", **publish)
    with pytest.raises(BrokerError, match="read access to topic 'a'"):
        await client.call("binding.create", as_user="management", routing_key="a", **BINDING)
    await client.call("binding.create", as_user="management", routing_key="b", **BINDING)


async def test_it_lets_only_an_administrator_name_the_cluster(
    people: Broker, client: BrokerClient
) -> None:
    args = {"name": "cluster_name", "value": "here"}
    with pytest.raises(BrokerError, match="Not administrator user"):
        await client.call("global-parameter.put", as_user="policymaker", **args)
    await client.call("global-parameter.put", as_user="administrator", **args)
    assert (await client.call("overview"))["cluster_name"] == "here"

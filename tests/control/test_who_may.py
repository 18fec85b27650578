"""Every verb and every noun, asked by a user of every tag: RabbitMQ's rules, one table."""

from __future__ import annotations

from typing import Any

import pytest

from broker.access import Parameter
from broker.schema.control_schema import NOUNS, VERBS
from broker.server.app import Broker
from broker.vhosts.policies import Policy
from broker.vhosts.tracing import Trace
from management.broker_client import BrokerClient, BrokerError
from tests.inside import connect, put_user

TAGS = ("none", "management", "policymaker", "monitoring", "administrator")
ALL = set(TAGS) - {"none"}
POLICY = {"policymaker", "administrator"}
MONITOR = {"monitoring", "administrator"}
ADMIN = {"administrator"}
NOBODY: set[str] = set()

# Whom RabbitMQ lets through, measured at its HTTP API; arguments that would be let through.
IN_VHOST = {"vhost": "/", "name": "q"}
BINDING = {"vhost": "/", "source": "amq.topic", "destination": "q", "destination_type": "queue"}
POLICY_ARGUMENTS = {"vhost": "/", "name": "p", "pattern": "^q", "definition": {"max-length": 9}}
VHOST_LIMITS = {"component": "vhost-limits", "vhost": "/", "name": "limits"}
SHOVEL = {"src-uri": "amqp://", "dest-uri": "amqp://", "src-queue": "q", "dest-queue": "q2"}
EXPECTED: dict[str, tuple[set[str], dict[str, Any]]] = {
    "authenticate": (NOBODY, {"user": "none", "password": "secret", "peer": "192.0.2.1"}),
    "authenticate.leave": (NOBODY, {"login": 1}),
    "session.valid": (NOBODY, {"user": "none", "epoch": 1, "session_id": "s"}),
    "session.end": (NOBODY, {"session_id": "s", "expires_at": 1}),
    "backup.begin": (NOBODY, {}),
    "ticket.issue": (set(TAGS), {}),
    "whoami": (ALL, {}),
    "overview": (ALL, {}),
    "problems": (ALL, {}),
    "queue.refusals": (ALL, IN_VHOST),
    "nodes": (MONITOR, {}),
    "list": (ALL, {"noun": "queues"}),
    "list.more": (NOBODY, {"list": 1}),
    "list.end": (set(TAGS), {"list": 1}),
    "item": (ALL, {"noun": "queues", "vhost": "/", "name": "q"}),
    "history": (ALL, {"what": "overview"}),
    "subscribe": (ALL, {"topic": "overview"}),
    "unsubscribe": (NOBODY, {"sub": 99}),
    "health": (ALL, {"check": "alarms"}),
    "statistics.reset": (ADMIN, {}),
    "feature-flags": (ALL, {}),
    "feature-flag.enable": (ADMIN, {"name": "quorum_queue"}),
    "settings": (ADMIN, {}),
    "log": (MONITOR, {}),
    "metrics": (MONITOR, {"path": "/metrics/memory-breakdown"}),
    "traces": (ADMIN, {}),
    "trace.put": (ADMIN, {"vhost": "/", "name": "t", "queue": "q"}),
    "trace.delete": (ADMIN, {"vhost": "/", "name": "there"}),
    "auth.attempts": (MONITOR, {}),
    "auth.attempts.reset": (ADMIN, {}),
    "queue.declare": (ALL, IN_VHOST),
    "queue.delete": (ALL, IN_VHOST),
    "queue.purge": (ALL, IN_VHOST),
    "queue.pause": (ALL, IN_VHOST),
    "queue.resume": (ALL, IN_VHOST),
    "queue.get": (ALL, IN_VHOST),
    "queue.peek": (ALL, IN_VHOST),
    "stream.read": (ALL, {"vhost": "/", "name": "log"}),
    "stream.search": (ALL, {"vhost": "/", "name": "log", "value": "1"}),
    "exchange.declare": (ALL, {"vhost": "/", "name": "x"}),
    "exchange.delete": (ALL, {"vhost": "/", "name": "later"}),
    "exchange.delayed": (ALL, {"vhost": "/", "name": "amq.topic"}),
    "exchange.delayed.cancel": (ALL, {"vhost": "/", "name": "later"}),
    "tiers": (MONITOR, {}),
    "tiers.adopt": (ADMIN, {}),
    "transfer.start": (ALL, {**IN_VHOST, "mode": "move", "target": "log"}),
    "transfer.preview": (ALL, IN_VHOST),
    "transfer.replay": (ALL, {**IN_VHOST, "name": "log", "target": "q"}),
    "transfer.list": (ALL, {}),
    "transfer.pause": (ADMIN, {}),
    "transfer.resume": (ADMIN, {}),
    "transfer.delete": (ADMIN, {}),
    "exchange.publish": (
        ALL,
        {"vhost": "/", "name": "amq.default", "routing_key": "q", "payload": b""},
    ),
    "binding.create": (ALL, BINDING),
    "binding.delete": (ALL, {**BINDING, "properties_key": "there"}),
    "queue.unacked": (ALL, IN_VHOST),
    "queue.restart": (ALL, IN_VHOST),
    "consumer.cancel": (
        ADMIN,
        {"vhost": "/", "connection": "other", "channel": 1, "consumer_tag": "t"},
    ),
    "channel.prefetch": (ADMIN, {"name": "other (1)", "prefetch": 5}),
    "connection.close": (ADMIN, {"name": "other"}),
    "connection.close_user": (ADMIN, {"user": "other"}),
    "vhost.put": (ADMIN, {"name": "shop"}),
    "vhost.delete": (ADMIN, {"name": "/"}),
    "user.put": (ADMIN, {"name": "new", "tags": []}),
    "vhost.protect": (ADMIN, {"name": "/", "protected": True}),
    "user.delete": (ADMIN, {"name": "other"}),
    "users.delete": (ADMIN, {"names": ["other"]}),
    "permission.put": (
        ADMIN,
        {"vhost": "/", "user": "other", "configure": "", "write": "", "read": ""},
    ),
    "permission.delete": (ADMIN, {"vhost": "/", "user": "other"}),
    "topic-permission.put": (
        ADMIN,
        {"vhost": "/", "user": "other", "exchange": "x", "write": "", "read": ""},
    ),
    "topic-permission.delete": (ADMIN, {"vhost": "/", "user": "other", "exchange": "amq.topic"}),
    "vhost-limit.put": (ADMIN, {"vhost": "/", "name": "max-queues", "value": 1}),
    "vhost-limit.delete": (ADMIN, {"vhost": "/", "name": "max-queues"}),
    "user-limit.put": (ADMIN, {"user": "other", "name": "max-channels", "value": 1}),
    "user-limit.delete": (ADMIN, {"user": "other", "name": "max-channels"}),
    "global-parameter.put": (POLICY, {"name": "p", "value": 1}),
    "global-parameter.delete": (POLICY, {"name": "there"}),
    "policy.put": (POLICY, POLICY_ARGUMENTS),
    "policy.delete": (POLICY, {"vhost": "/", "name": "there"}),
    "operator-policy.put": (ADMIN, POLICY_ARGUMENTS),
    "operator-policy.delete": (ADMIN, {"vhost": "/", "name": "there"}),
    "policy.keys": (ALL, {}),
    "types": (ALL, {}),
    "policy.preview": (ALL, {"vhost": "/", "pattern": "^q"}),
    "shovel.list": (POLICY | MONITOR, {}),
    "shovel.pause": (POLICY, {"vhost": "/", "name": "s"}),
    "shovel.resume": (POLICY, {"vhost": "/", "name": "s"}),
    "shovel.restart": (POLICY, {"vhost": "/", "name": "s"}),
    "shovel.test": (POLICY, {"vhost": "/", "name": "s", "value": SHOVEL}),
    "bridges.follow": (NOBODY, {"version": -1}),
    "bridges.report": (NOBODY, {"shovels": []}),
    "bridges.tested": (NOBODY, {"id": 1, "steps": []}),
    "bridges.login": (NOBODY, {"owner": "policymaker", "vhost": "/"}),
    "federation.list": (POLICY | MONITOR, {}),
    "federation.restart": (POLICY, {"vhost": "/", "id": "none"}),
    "federation.follow": (NOBODY, {"version": -1}),
    "federation.bindings": (NOBODY, {"vhost": "/", "exchange": "later", "serial": -1}),
    "federation.report": (NOBODY, {"links": []}),
    "federation.login": (NOBODY, {"owner": "policymaker", "vhost": "/"}),
    "parameter.put": (ADMIN, {**VHOST_LIMITS, "value": {"max-queues": 9}}),
    "parameter.delete": (ADMIN, VHOST_LIMITS),
    "definitions.export": (ADMIN, {}),
    "definitions.import": (ADMIN, {"definitions": {}}),
    "password.hash": (ADMIN, {"password": "x"}),
}
LISTED = {
    "queues": ALL,
    "exchanges": ALL,
    "bindings": ALL,
    "connections": ALL,
    "channels": ALL,
    "consumers": ALL,
    "vhosts": ALL,
    "users": ADMIN,
    "permissions": ADMIN,
    "topic-permissions": ADMIN,
    "vhost-limits": ALL,
    "user-limits": ALL,
    "global-parameters": POLICY,
    "parameters": POLICY,
    "policies": ALL,
    "operator-policies": ALL,
}


@pytest.fixture
async def people(broker: Broker) -> Broker:
    """A user per tag with full permissions in `/`, and another one who owns a connection."""
    for tag in TAGS:
        put_user(broker, tag, *([] if tag == "none" else [tag]))
    put_user(broker, "other", "management")
    broker.access.put_topic_permission("other", "/", "amq.topic", ".*", ".*")
    broker.access.parameters.put_global("there", 1)
    broker.access.parameters.put_vhost_limit("/", "max-connections", 99)
    for operator in (False, True):
        broker.policies.put(Policy("/", "there", "^q", {"max-length": 9}), operator=operator)
    vhost = broker.vhosts["/"]
    queue, _ = vhost.declare_queue("q")
    vhost.declare_queue("log", durable=True, arguments={"x-queue-type": "stream"})
    vhost.bind("amq.topic", "q", "queue", "there", {})
    vhost.declare_exchange("later", "x-delayed-message", arguments={"x-delayed-type": "direct"})
    vhost.tracer.traces["there"] = Trace("there", "#", "gone", is_own=False)
    other = await connect(broker, "other")
    other.session.name = "other"
    await other.consume("q", "t")
    broker.access.parameters.put(Parameter("shovel", "/", "s", SHOVEL))
    broker.shovels.ask_test = lambda vhost, value, owner, answer: answer([])
    broker.persister.failed_reads.add("a segment", "planted", queue.wake)
    return broker


async def named(broker: Broker, client: BrokerClient, verb: str) -> dict[str, Any]:
    """The arguments of a verb that name what is made for it: a delayed message, a transfer."""
    vhost = broker.vhosts["/"]
    if verb == "exchange.delayed.cancel":
        delay = {"headers": {"x-delay": 3_600_000}}
        vhost.bind("later", "q", "queue", "key", {})
        assert vhost.publish(vhost.exchange("later"), ["key"], delay, b"later")
        held = await client.call("exchange.delayed", vhost="/", name="later")
        return {"id": held["items"][0]["id"]}
    if verb == "transfer.delete":
        ends = {"vhost": "/", "name": "q", "mode": "move", "target": "log"}
        transfer = await client.call("transfer.start", as_user="other", **ends)
        return {"id": transfer["id"]}
    return {}


def rows() -> list[tuple[str, str]]:
    known = [verb for verb in VERBS if not verb.startswith("reports.")]
    return [(verb, tag) for verb in known for tag in TAGS]


@pytest.mark.parametrize(("verb", "tag"), rows())
async def test_it_lets_each_verb_through_by_tag(
    people: Broker, client: BrokerClient, verb: str, tag: str
) -> None:
    allowed, args = EXPECTED[verb]
    args = {**args, **await named(people, client, verb)}
    if tag in allowed and verb == "stream.search":
        with pytest.raises(BrokerError, match="has no index"):
            await client.call(verb, as_user=tag, **args)
        return
    if tag in allowed:
        await client.call(verb, as_user=tag, **args)
        return
    before = people.access.version
    with pytest.raises(BrokerError) as caught:
        await client.call(verb, as_user=tag, **args)
    of_others = {"connection.close", "consumer.cancel", "channel.prefetch"}
    if verb in ("unsubscribe", "list.more") or (
        # What is another's does not exist, for who does not see it.
        verb in of_others and tag in ("management", "policymaker")
    ):
        assert caught.value.status == 404
        assert people.connections
        return
    assert caught.value.status == 401, verb
    assert caught.value.error == "not_authorised"
    assert people.access.version == before
    assert people.connections


@pytest.mark.parametrize("noun", NOUNS)
async def test_it_lists_each_noun_by_tag(people: Broker, client: BrokerClient, noun: str) -> None:
    for tag in TAGS:
        if tag in LISTED[noun]:
            await client.call("list", as_user=tag, noun=noun)
            continue
        with pytest.raises(BrokerError) as caught:
            await client.call("list", as_user=tag, noun=noun)
        assert caught.value.status == 401


async def test_it_names_the_tag_that_is_missing(people: Broker, client: BrokerClient) -> None:
    for verb, tag, reason in (
        ("whoami", "none", "Not management user"),
        ("nodes", "management", "Not monitor user"),
        ("definitions.export", "monitoring", "Not administrator user"),
    ):
        with pytest.raises(BrokerError) as caught:
            await client.call(verb, as_user=tag)
        assert caught.value.reason == reason


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


async def test_it_believes_no_user_that_it_does_not_know(client: BrokerClient) -> None:
    with pytest.raises(BrokerError, match="user does not exist") as caught:
        await client.call("whoami", as_user="nobody")
    assert caught.value.status == 401


async def test_it_lets_only_an_administrator_name_the_cluster(
    people: Broker, client: BrokerClient
) -> None:
    args = {"name": "cluster_name", "value": "here"}
    with pytest.raises(BrokerError, match="Not administrator user"):
        await client.call("global-parameter.put", as_user="policymaker", **args)
    await client.call("global-parameter.put", as_user="administrator", **args)
    assert (await client.call("overview"))["cluster_name"] == "here"

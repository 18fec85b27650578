"""Every verb and every noun, asked by a user of every tag: RabbitMQ's rules, one table.

Calls that change nothing, because they only read or are refused, share a broker. The others, and
what else decides who may do something, are in `test_who_may_change.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from broker.access import Parameter
from broker.features.federation.feature import Running
from broker.features.federation.links import Link
from broker.schema.control_schema import NOUNS, VERBS
from broker.schema.tier_work import Answer
from broker.server.app import Broker
from broker.vhosts.policies import Policy
from broker.vhosts.tracing import Trace
from management.broker_client import BrokerClient, BrokerError
from tests.inside import connect, in_memory, publish, put_user, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

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
    "request.leave": (NOBODY, {"request": 1}),
    "session.valid": (NOBODY, {"user": "none", "epoch": 1, "session_id": "s"}),
    "session.end": (NOBODY, {"session_id": "s", "expires_at": 1}),
    "backup.begin": (NOBODY, {}),
    "files.carry": (NOBODY, {"steps": []}),
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
    "listeners.suspend": (ADMIN, {}),
    "listeners.resume": (ADMIN, {}),
    "node.drain": (ADMIN, {}),
    "node.revive": (ADMIN, {}),
    "app.stop": (ADMIN, {}),
    "app.start": (ADMIN, {}),
    "setting.put": (ADMIN, {"name": "log_level", "value": "info"}),
    "memory": (MONITOR, {}),
    "memory.release": (ADMIN, {}),
    "process": (ADMIN, {}),
    "certificates": (ADMIN, {}),
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
    "auth.attempts.track": (ADMIN, {"sources": True}),
    "queue.declare": (ALL, IN_VHOST),
    "queue.delete": (ALL, IN_VHOST),
    "queue.purge": (ALL, IN_VHOST),
    "queue.pause": (ALL, IN_VHOST),
    "queue.resume": (ALL, IN_VHOST),
    "queue.get": (ALL, IN_VHOST),
    "queue.peek": (ALL, IN_VHOST),
    "stream.read": (ALL, {"vhost": "/", "name": "log"}),
    "history.life": (POLICY, {"vhost": "/", "offset": 0}),
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
    "bridges.source": (NOBODY, {"vhost": "/", "queue": "q"}),
    "bridges.place": (
        NOBODY,
        {"vhost": "/", "name": "s", "birth": 1, "of": "", "offset": 0, "noted": 0},
    ),
    "bridges.login": (NOBODY, {"owner": "policymaker", "vhost": "/"}),
    "federation.list": (POLICY | MONITOR, {}),
    "federation.upstreams": (POLICY | MONITOR, {}),
    "federation.restart": (POLICY, {"vhost": "/", "id": "none"}),
    "federation.test": (POLICY, {"vhost": "/", "name": "up", "value": {"uri": "amqp://far"}}),
    "federation.tested": (NOBODY, {"id": 1, "steps": []}),
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


async def populate(broker: Broker) -> None:
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
    broker.tiers.adopt = lambda done: done(Answer(1, owner="this"))
    link = Link("/", "exchange", "later", "up", "later", {}, "policymaker", "p", None)
    broker.federation.ask_test = lambda parameter, answer: answer([])
    broker.federation.get = lambda vhost, id: Running(link, 1)
    broker.persister.failed_reads.add("a segment", "planted", queue.wake)


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
    if verb in ("transfer.pause", "transfer.resume"):
        publish(vhost, "log", 100)
        ends = {"vhost": "/", "name": "log", "target": "q", "rate": 1}
        transfer = await client.call("transfer.replay", as_user="other", **ends)
        if verb == "transfer.resume":
            await client.call("transfer.pause", id=transfer["id"])
        return {"id": transfer["id"]}
    return {}


NOT_THERE = {"stream.search": "has no index", "history.life": "no queue .amq.history"}
"""Verbs that are let through and then miss what they need."""


async def check(broker: Broker, client: BrokerClient, verb: str, tag: str) -> None:
    """Calls a verb as the user of a tag: it is let through, or refused and nothing changes."""
    allowed, args = EXPECTED[verb]
    args = {**args, **await named(broker, client, verb)}
    if tag in allowed and verb in NOT_THERE:
        with pytest.raises(BrokerError, match=NOT_THERE[verb]):
            await client.call(verb, as_user=tag, **args)
        return
    if tag in allowed:
        await client.call(verb, as_user=tag, **args)
        return
    before = broker.access.version
    with pytest.raises(BrokerError) as caught:
        await client.call(verb, as_user=tag, **args)
    of_others = {"connection.close", "consumer.cancel", "channel.prefetch"}
    if verb in ("unsubscribe", "list.more") or (
        # What is another's does not exist, for who does not see it.
        verb in of_others and tag in ("management", "policymaker")
    ):
        assert caught.value.status == 404
        assert broker.connections
        return
    assert caught.value.status == 401, verb
    assert caught.value.error == "not_authorised"
    assert broker.access.version == before
    assert broker.connections


MADE = ("exchange.delayed.cancel", "transfer.delete", "transfer.pause", "transfer.resume")
ENDS_CONNECTIONS = ("node.drain", "app.stop")
"""Their answers wait for no disk, and yet the broker is another afterwards."""


def is_read_or_refused(verb: str, tag: str) -> bool:
    """Whether the call leaves the broker as it is. Where it names what is made for it, it does
    not."""
    is_change = VERBS[verb].changes or verb in ENDS_CONNECTIONS
    return verb not in MADE and not (is_change and tag in EXPECTED[verb][0])


def rows(*, read_or_refused: bool) -> list[tuple[str, str]]:
    """The calls, verb and tag, that need no broker of their own, or the others."""
    known = [verb for verb in VERBS if not verb.startswith("reports.")]
    return [
        (verb, tag)
        for verb in known
        for tag in TAGS
        if is_read_or_refused(verb, tag) == read_or_refused
    ]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Broker]:
    with in_memory() as directory:
        async with running(directory) as broker:
            await populate(broker)
            yield broker


@pytest_asyncio.fixture(loop_scope="module")
async def client(shared: Broker) -> AsyncIterator[BrokerClient]:
    client = BrokerClient(shared.config.control_socket)
    yield client
    await client.close()


@pytest.mark.parametrize(("verb", "tag"), rows(read_or_refused=True))
async def test_it_lets_each_verb_through_by_tag(
    shared: Broker, client: BrokerClient, verb: str, tag: str
) -> None:
    await check(shared, client, verb, tag)


@pytest.mark.parametrize("noun", NOUNS)
async def test_it_lists_each_noun_by_tag(client: BrokerClient, noun: str) -> None:
    for tag in TAGS:
        if tag in LISTED[noun]:
            await client.call("list", as_user=tag, noun=noun)
            continue
        with pytest.raises(BrokerError) as caught:
            await client.call("list", as_user=tag, noun=noun)
        assert caught.value.status == 401


async def test_it_names_the_tag_that_is_missing(client: BrokerClient) -> None:
    for verb, tag, reason in (
        ("whoami", "none", "Not management user"),
        ("nodes", "management", "Not monitor user"),
        ("definitions.export", "monitoring", "Not administrator user"),
    ):
        with pytest.raises(BrokerError) as caught:
            await client.call(verb, as_user=tag)
        assert caught.value.reason == reason


async def test_it_believes_no_user_that_it_does_not_know(client: BrokerClient) -> None:
    with pytest.raises(BrokerError, match="user does not exist") as caught:
        await client.call("whoami", as_user="nobody")
    assert caught.value.status == 401

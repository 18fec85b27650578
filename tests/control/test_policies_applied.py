"""Policies on a real broker: each key does its work on what is there and on what comes later."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pika
import pytest
from pika.exceptions import NackError

from management.broker_client import BrokerClient, BrokerError
from tests.appliance import Appliance
from tests.control.test_real_broker import connect, control, until

PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture
async def client(shared_broker: Appliance) -> AsyncIterator[BrokerClient]:
    async with control(shared_broker) as client:
        yield client
        for noun, verb in (
            ("policies", "policy.delete"),
            ("operator-policies", "operator-policy.delete"),
        ):
            for row in (await client.call("list", noun=noun))["items"]:
                await client.call(verb, vhost=row["vhost"], name=row["name"])


@pytest.fixture
def connection(shared_broker: Appliance) -> Iterator[pika.BlockingConnection]:
    connection = connect(shared_broker)
    yield connection
    if connection.is_open:
        connection.close()


@pytest.fixture
def channel(connection: Any) -> Any:
    channel = connection.channel()
    channel.confirm_delivery()
    return channel


async def put(
    client: BrokerClient,
    name: str,
    definition: dict[str, Any],
    *,
    pattern: str | None = None,
    verb: str = "policy.put",
    **more: Any,
) -> None:
    """Sets a policy for the queue or exchange of its own name."""
    pattern = f"^{name}$" if pattern is None else pattern
    args = {"vhost": "/", "pattern": pattern, "definition": definition, **more}
    await client.call(verb, name=name, **args)


async def shown(client: BrokerClient, name: str, noun: str = "queues") -> Any:
    return await client.call("item", noun=noun, vhost="/", name=name)


async def ready(client: BrokerClient, name: str, wanted: int) -> None:
    async def look() -> Any:
        return (await shown(client, name))["messages_ready"]

    await until(look, lambda count: count == wanted)


def fill(channel: Any, queue: str, count: int, body: bytes = b"", **arguments: Any) -> None:
    channel.queue_declare(queue, durable=True, arguments=arguments.get("arguments"))
    for number in range(count):
        channel.basic_publish("", queue, body or b"%d" % number, PERSISTENT)


def bodies(channel: Any, queue: str) -> list[bytes]:
    found = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(got[2])
    return found


# Each key.


async def test_it_drops_heads_that_a_new_length_does_not_let_stay(
    client: BrokerClient, channel: Any
) -> None:
    fill(channel, "length", 10)
    await put(client, "length", {"max-length": 3})
    await ready(client, "length", 3)
    channel.basic_publish("", "length", b"new")
    assert bodies(channel, "length") == [b"8", b"9", b"new"]


async def test_it_drops_heads_that_a_new_size_does_not_let_stay(
    client: BrokerClient, channel: Any
) -> None:
    fill(channel, "size", 10, b"x" * 100)
    await put(client, "size", {"max-length-bytes": 250})
    await ready(client, "size", 2)


async def test_it_sheds_what_waits_behind_a_full_consumer(
    client: BrokerClient, channel: Any
) -> None:
    fill(channel, "behind", 10)
    channel.basic_qos(prefetch_count=2)
    channel.basic_consume("behind", lambda *delivery: None)
    await ready(client, "behind", 8)
    await put(client, "behind", {"max-length": 3})
    await ready(client, "behind", 3)
    assert (await shown(client, "behind"))["messages_unacknowledged"] == 2


async def test_it_refuses_instead_where_overflow_says_so(
    client: BrokerClient, channel: Any
) -> None:
    fill(channel, "overflow", 5)
    await put(client, "overflow", {"max-length": 3, "overflow": "reject-publish"})
    await ready(client, "overflow", 5)
    with pytest.raises(NackError):
        channel.basic_publish("", "overflow", b"too many")
    await put(client, "overflow", {"max-length": 3})
    await ready(client, "overflow", 3)


async def test_it_expires_messages_that_are_there(client: BrokerClient, channel: Any) -> None:
    fill(channel, "ttl", 5)
    await put(client, "ttl", {"message-ttl": 1})
    await ready(client, "ttl", 0)
    channel.basic_publish("", "ttl", b"another")
    await ready(client, "ttl", 0)


async def test_it_keeps_to_a_messages_own_ttl_when_the_queues_is_gone(
    client: BrokerClient, channel: Any
) -> None:
    channel.queue_declare("own-ttl", durable=True)
    await put(client, "own-ttl", {"message-ttl": 3_600_000})
    brief = pika.BasicProperties(expiration="300")
    channel.basic_publish("", "own-ttl", b"", brief)
    channel.basic_publish("", "own-ttl", b"")
    await client.call("policy.delete", vhost="/", name="own-ttl")
    await ready(client, "own-ttl", 1)


async def test_it_deletes_unused_queues_and_starts_the_time_anew(
    client: BrokerClient, channel: Any
) -> None:
    channel.queue_declare("unused-kept", durable=True)
    await put(client, "unused-kept", {"expires": 400})
    # The time that began is not the one that counts.
    await put(client, "unused-kept", {"expires": 3_600_000})
    channel.queue_declare("unused-gone", durable=True)
    await put(client, "unused-gone", {"expires": 500})

    async def look() -> Any:
        rows = (await client.call("list", noun="queues", name="unused-"))["items"]
        return {row["name"] for row in rows} & {"unused-kept", "unused-gone"}

    assert await until(look, lambda names: "unused-gone" not in names) == {"unused-kept"}


async def test_it_routes_through_an_alternate_exchange_at_once(
    client: BrokerClient, channel: Any
) -> None:
    channel.exchange_declare("with-alternate", "direct")
    channel.exchange_declare("the-alternate", "fanout")
    channel.queue_declare("alternate-queue")
    channel.queue_bind("alternate-queue", "the-alternate")
    arguments = {"noun": "queues", "vhost": "/", "name": "alternate-queue"}

    async def routed() -> bool:
        before = (await client.call("item", **arguments))["messages_ready"]
        with contextlib.suppress(pika.exceptions.UnroutableError):
            channel.basic_publish("with-alternate", "nowhere", b"", mandatory=True)
        return bool((await client.call("item", **arguments))["messages_ready"] - before)

    assert not await routed()
    await put(client, "with-alternate", {"alternate-exchange": "the-alternate"})
    assert await routed()
    row = await shown(client, "with-alternate", "exchanges")
    assert row["policy"] == "with-alternate"
    assert row["effective_policy_arguments"] == ["alternate-exchange"]
    await client.call("policy.delete", vhost="/", name="with-alternate")
    assert not await routed()


async def test_it_dead_letters_what_a_new_limit_does_not_let_stay(
    client: BrokerClient, channel: Any
) -> None:
    fill(channel, "policed-letters", 5)
    channel.queue_declare("policed-dead", durable=True)
    definition = {
        "max-length": 2,
        "dead-letter-exchange": "",
        "dead-letter-routing-key": "policed-dead",
    }
    await put(client, "policed-letters", definition)
    await ready(client, "policed-dead", 3)
    assert bodies(channel, "policed-dead") == [b"0", b"1", b"2"]
    assert bodies(channel, "policed-letters") == [b"3", b"4"]


async def test_it_keeps_the_dead_letter_exchange_of_the_declaration(
    client: BrokerClient, channel: Any
) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "own-dead"}
    fill(channel, "own-letters", 3, arguments=arguments)
    for name in ("own-dead", "other-dead"):
        channel.queue_declare(name)
    definition = {"max-length": 1, "dead-letter-routing-key": "other-dead"}
    await put(client, "own-letters", definition)
    await ready(client, "own-dead", 2)


async def test_it_limits_how_often_a_message_comes_back(client: BrokerClient, channel: Any) -> None:
    fill(channel, "returns", 1)
    await put(client, "returns", {"delivery-limit": 1})
    for _ in range(2):
        delivery, _, _ = channel.basic_get("returns")
        assert delivery is not None
        channel.basic_reject(delivery.delivery_tag, requeue=True)
    await ready(client, "returns", 0)


# Which of them holds, and how it is shown.


async def test_it_shows_what_holds_and_where_from(client: BrokerClient, channel: Any) -> None:
    channel.queue_declare("shown", arguments={"x-max-length": 50, "x-message-ttl": 10_000})
    assert (await shown(client, "shown"))["effective_arguments"] == [
        "x-max-length",
        "x-message-ttl",
    ]
    await put(client, "shown", {"max-length": 100, "message-ttl": 5_000, "queue-mode": "lazy"})
    operator = {"max-length": 20, "expires": 3_600_000}
    await put(client, "bound", operator, pattern="^shown$", verb="operator-policy.put")
    row = await shown(client, "shown")
    assert (row["policy"], row["operator_policy"]) == ("shown", "bound")
    assert row["effective_policy_definition"] == {
        "max-length": 20,
        "message-ttl": 5_000,
        "queue-mode": "lazy",
        "expires": 3_600_000,
    }
    assert row["effective_arguments"] == []
    assert sorted(row["effective_policy_arguments"]) == ["expires", "max-length", "message-ttl"]
    (length,) = [each for each in row["settings"] if each["argument"] == "x-max-length"]
    assert length == {
        "argument": "x-max-length",
        "key": "max-length",
        "value": 20,
        "source": "operator policy",
        "source_name": "bound",
        "overruled": [
            {"value": 50, "source": "argument", "source_name": ""},
            {"value": 100, "source": "policy", "source_name": "shown"},
        ],
    }
    (policy,) = (await client.call("list", noun="policies"))["items"]
    assert (policy["queues"], policy["exchanges"]) == (1, 0)


async def test_it_gives_a_new_queue_its_policy_at_once(client: BrokerClient, channel: Any) -> None:
    await put(client, "born", {"max-length": 1}, pattern="^born")
    fill(channel, "born-1", 3)
    row = await shown(client, "born-1")
    assert (row["policy"], row["messages_ready"]) == ("born", 1)
    channel.queue_delete("born-1")
    (policy,) = (await client.call("list", noun="policies"))["items"]
    assert policy["queues"] == 0


async def test_it_takes_the_limit_away_with_the_policy(client: BrokerClient, channel: Any) -> None:
    await put(client, "freed", {"max-length": 1})
    fill(channel, "freed", 3)
    await client.call("policy.delete", vhost="/", name="freed")
    channel.basic_publish("", "freed", b"")
    assert (await shown(client, "freed"))["messages_ready"] == 2
    assert (await shown(client, "freed"))["policy"] is None


async def test_it_moves_queues_to_the_policy_of_higher_priority(
    client: BrokerClient, channel: Any
) -> None:
    fill(channel, "ranked", 9)
    await put(client, "ranked", {"max-length": 5})
    await put(client, "ranked-higher", {"max-length": 7}, pattern="^ranked$", priority=1)
    await ready(client, "ranked", 5)
    channel.basic_publish("", "ranked", b"")
    await ready(client, "ranked", 6)


async def test_it_drops_a_long_backlog_without_holding_up_others(
    client: BrokerClient, connection: Any
) -> None:
    channel = connection.channel()
    channel.queue_declare("backlog", durable=True)
    for _ in range(60_000):
        channel.basic_publish("", "backlog", b"x")
    await ready(client, "backlog", 60_000)
    await put(client, "backlog", {"max-length": 10})
    await ready(client, "backlog", 10)


# The verbs.


async def test_it_refuses_what_no_policy_can_be(client: BrokerClient) -> None:
    for change, text in (
        ({"definition": {"colour": 1}}, '[{<<"colour">>,1}] are not recognised policy settings'),
        ({"definition": {"max-length": "5"}}, '<<"5">> is not a valid maximum length'),
        ({"pattern": "(?=x)"}, "pattern should be regular expression but is invalid: "),
        ({"apply_to": "nobody"}, "apply-to 'nobody' unrecognised"),
    ):
        with pytest.raises(BrokerError) as caught:
            await put(client, "bad", **{"definition": {"max-length": 1}, **change})
        assert caught.value.status == 400
        assert caught.value.reason.startswith(f"Validation failed\n\n{text}")
    with pytest.raises(BrokerError, match="vhost_not_found"):
        await put(client, "bad", {"max-length": 1}, vhost="missing")
    for verb in ("policy.delete", "operator-policy.delete"):
        with pytest.raises(BrokerError) as caught:
            await client.call(verb, vhost="/", name="missing")
        assert caught.value.status == 404


async def test_it_tells_what_a_pattern_would_reach(client: BrokerClient, channel: Any) -> None:
    for name in ("preview-b", "preview-a"):
        channel.queue_declare(name)
    args = {"vhost": "/", "pattern": "^(preview-|amq.topic)"}
    found = await client.call("policy.preview", **args)
    assert found == {
        "queues": 2,
        "queue_names": ["preview-b", "preview-a"],
        "exchanges": 1,
        "exchange_names": ["amq.topic"],
    }
    found = await client.call("policy.preview", **args, apply_to="exchanges")
    assert (found["queues"], found["exchanges"]) == (0, 1)
    with pytest.raises(BrokerError, match="should be regular expression"):
        await client.call("policy.preview", vhost="/", pattern="(")


async def test_it_sets_limits_of_a_vhost_as_a_parameter(client: BrokerClient) -> None:
    named = {"component": "vhost-limits", "vhost": "/", "name": "limits"}
    await client.call("parameter.put", **named, value={"max-queues": 500, "max-connections": -1})
    # Other tests' virtual hosts have limits too.
    listed = {"noun": "parameters", "component": "vhost-limits", "vhost": "/"}
    (row,) = (await client.call("list", **listed))["items"]
    assert row == {**named, "value": {"max-queues": 500}}
    for change, text in (
        ({"value": {"max-queues": "x"}}, "max-queues should be a number"),
        ({"value": 5}, "limits should be a dictionary, actually was 5"),
        ({"name": "colour"}, 'vhost-limits are one parameter named "limits"'),
        ({"component": "colour"}, "component colour not found"),
        ({"component": "policy"}, "policies may not be set using this method"),
    ):
        with pytest.raises(BrokerError, match=text) as caught:
            await client.call("parameter.put", **{**named, "value": {}, **change})
        assert caught.value.status == 400
    with pytest.raises(BrokerError) as caught:
        await client.call("parameter.put", **{**named, "component": "shovel"}, value={})
    assert caught.value.status == 501
    await client.call("parameter.delete", **named)
    with pytest.raises(BrokerError) as caught:
        await client.call("parameter.delete", **named)
    assert caught.value.status == 404


# Over restarts.


@pytest.mark.parametrize("how", ["kill", "stop"])
async def test_it_keeps_policies_over_a_restart(make_broker: Any, how: str) -> None:
    broker = make_broker()
    connection = connect(broker)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.exchange_declare("x", durable=True)
    async with control(broker) as client:
        await put(client, "q", {"max-length": 3, "alternate-exchange": "a"}, pattern="^(q|x)$")
        await put(client, "o", {"max-length": 2}, pattern="", verb="operator-policy.put")
        fill(channel, "q", 5)
    getattr(broker, how)()
    broker.start()
    async with control(broker) as client:
        row = await shown(client, "q")
        assert (row["policy"], row["operator_policy"], row["messages_ready"]) == ("q", "o", 2)
        assert (await shown(client, "x", "exchanges"))["policy"] == "q"
        (policy,) = (await client.call("list", noun="policies"))["items"]
        assert (policy["queues"], policy["exchanges"]) == (1, 1)


async def test_it_takes_policies_that_a_person_wrote_while_it_was_down(make_broker: Any) -> None:
    broker = make_broker()
    connection = connect(broker)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("q", durable=True)
    persistent = pika.BasicProperties(delivery_mode=2)
    for number in range(5):
        channel.basic_publish("", "q", b"%d" % number, persistent)
    broker.stop()
    row = {"vhost": "/", "name": "p", "pattern": "q", "definition": {"max-length": 2}}
    (broker.data_dir / "policies.json").write_text(json.dumps([row]))
    broker.start()
    async with control(broker) as client:
        await ready(client, "q", 2)
        await client.call("policy.delete", vhost="/", name="p")
        assert json.loads((broker.data_dir / "policies.json").read_text()) == []


def test_it_starts_with_no_broken_policies_file(make_broker: Any) -> None:
    broker = make_broker(start=False)
    broker.data_dir.mkdir(parents=True, exist_ok=True)
    row = {"vhost": "/", "name": "p", "pattern": "(", "definition": {"max-length": 2}}
    (broker.data_dir / "policies.json").write_text(json.dumps([row]))
    broker.start(wait=False)
    assert broker.wait() == 78
    assert "policies.json: policy 'p' of vhost '/': pattern should be" in broker.log()


async def test_it_forgets_the_policies_of_a_deleted_vhost(client: BrokerClient) -> None:
    await client.call("vhost.put", name="brief")
    for verb in ("policy.put", "operator-policy.put"):
        await put(client, "p", {"max-length": 1}, vhost="brief", verb=verb)
    await client.call("vhost.delete", name="brief")
    await client.call("vhost.put", name="brief")
    for noun in ("policies", "operator-policies"):
        assert (await client.call("list", noun=noun, vhost="brief"))["items"] == []
    await client.call("vhost.delete", name="brief")

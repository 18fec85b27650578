"""Policies on a real broker: which of them holds, how it is shown, the verbs, restarts."""

from __future__ import annotations

import json
from typing import Any

import pika
import pytest

from management.broker_client import BrokerClient, BrokerError
from tests.control.policed import fill, put, ready, shown
from tests.control.test_real_broker import connect, control

# Which of them holds, and how it is shown.


async def test_it_shows_what_holds_and_where_from(policing: BrokerClient, channel: Any) -> None:
    channel.queue_declare("shown", arguments={"x-max-length": 50, "x-message-ttl": 10_000})
    assert (await shown(policing, "shown"))["effective_arguments"] == [
        "x-max-length",
        "x-message-ttl",
    ]
    await put(policing, "shown", {"max-length": 100, "message-ttl": 5_000, "queue-mode": "lazy"})
    operator = {"max-length": 20, "expires": 3_600_000}
    await put(policing, "bound", operator, pattern="^shown$", verb="operator-policy.put")
    row = await shown(policing, "shown")
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
        "against": None,
        "overruled": [
            {"value": 50, "source": "argument", "source_name": ""},
            {"value": 100, "source": "policy", "source_name": "shown"},
        ],
    }
    (policy,) = (await policing.call("list", noun="policies"))["items"]
    assert (policy["queues"], policy["exchanges"]) == (1, 0)


async def test_it_gives_a_new_queue_its_policy_at_once(
    policing: BrokerClient, channel: Any
) -> None:
    await put(policing, "born", {"max-length": 1}, pattern="^born")
    fill(channel, "born-1", 3)
    row = await shown(policing, "born-1")
    assert (row["policy"], row["messages_ready"]) == ("born", 1)
    channel.queue_delete("born-1")
    (policy,) = (await policing.call("list", noun="policies"))["items"]
    assert policy["queues"] == 0


async def test_it_takes_the_limit_away_with_the_policy(
    policing: BrokerClient, channel: Any
) -> None:
    await put(policing, "freed", {"max-length": 1})
    fill(channel, "freed", 3)
    await policing.call("policy.delete", vhost="/", name="freed")
    channel.basic_publish("", "freed", b"")
    assert (await shown(policing, "freed"))["messages_ready"] == 2
    assert (await shown(policing, "freed"))["policy"] is None


async def test_it_moves_queues_to_the_policy_of_higher_priority(
    policing: BrokerClient, channel: Any
) -> None:
    fill(channel, "ranked", 9)
    await put(policing, "ranked", {"max-length": 5})
    await put(policing, "ranked-higher", {"max-length": 7}, pattern="^ranked$", priority=1)
    await ready(policing, "ranked", 5)
    channel.basic_publish("", "ranked", b"")
    await ready(policing, "ranked", 6)


async def test_it_drops_a_long_backlog_without_holding_up_others(
    policing: BrokerClient, connection: Any
) -> None:
    channel = connection.channel()
    channel.queue_declare("backlog", durable=True)
    for _ in range(20_000):
        channel.basic_publish("", "backlog", b"x")
    await ready(policing, "backlog", 20_000)
    await put(policing, "backlog", {"max-length": 10})
    await ready(policing, "backlog", 10)


# The verbs.


async def test_it_refuses_what_no_policy_can_be(policing: BrokerClient) -> None:
    for change, text in (
        ({"definition": {"colour": 1}}, '[{<<"colour">>,1}] are not recognised policy settings'),
        ({"definition": {"max-length": "5"}}, '<<"5">> is not a valid maximum length'),
        ({"pattern": "(?=x)"}, "pattern should be regular expression but is invalid: "),
        ({"apply_to": "nobody"}, "apply-to 'nobody' unrecognised"),
    ):
        with pytest.raises(BrokerError) as caught:
            await put(policing, "bad", **{"definition": {"max-length": 1}, **change})
        assert caught.value.status == 400
        assert caught.value.reason.startswith(f"Validation failed\n\n{text}")
    with pytest.raises(BrokerError, match="vhost_not_found"):
        await put(policing, "bad", {"max-length": 1}, vhost="missing")
    for verb in ("policy.delete", "operator-policy.delete"):
        with pytest.raises(BrokerError) as caught:
            await policing.call(verb, vhost="/", name="missing")
        assert caught.value.status == 404


async def test_it_tells_what_a_pattern_would_reach(policing: BrokerClient, channel: Any) -> None:
    for name in ("preview-b", "preview-a"):
        channel.queue_declare(name)
    args = {"vhost": "/", "pattern": "^(preview-|amq.topic)"}
    found = await policing.call("policy.preview", **args)
    assert found == {
        "queues": 2,
        "queue_names": ["preview-a", "preview-b"],
        "exchanges": 1,
        "exchange_names": ["amq.topic"],
    }
    found = await policing.call("policy.preview", **args, apply_to="exchanges")
    assert (found["queues"], found["exchanges"]) == (0, 1)
    with pytest.raises(BrokerError, match="should be regular expression"):
        await policing.call("policy.preview", vhost="/", pattern="(")


async def test_it_sets_limits_of_a_vhost_as_a_parameter(policing: BrokerClient) -> None:
    named = {"component": "vhost-limits", "vhost": "/", "name": "limits"}
    await policing.call("parameter.put", **named, value={"max-queues": 500, "max-connections": -1})
    # Other tests' virtual hosts have limits too.
    listed = {"noun": "parameters", "component": "vhost-limits", "vhost": "/"}
    (row,) = (await policing.call("list", **listed))["items"]
    assert row == {**named, "value": {"max-queues": 500}}
    for change, text in (
        ({"value": {"max-queues": "x"}}, "max-queues should be a number"),
        ({"value": 5}, "limits should be a dictionary, actually was 5"),
        ({"name": "colour"}, 'vhost-limits are one parameter named "limits"'),
        ({"component": "colour"}, "component colour not found"),
        ({"component": "shovel"}, 'Key "src-uri" not found in limits'),
        ({"component": "policy"}, "policies may not be set using this method"),
    ):
        with pytest.raises(BrokerError, match=text) as caught:
            await policing.call("parameter.put", **{**named, "value": {}, **change})
        assert caught.value.status == 400
    await policing.call("parameter.delete", **named)
    with pytest.raises(BrokerError) as caught:
        await policing.call("parameter.delete", **named)
    assert caught.value.status == 404


# Over restarts.


@pytest.mark.parametrize("how", ["kill", "stop"])
async def test_it_keeps_policies_over_a_restart(make_broker: Any, how: str) -> None:
    broker = make_broker()
    connection = connect(broker)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.exchange_declare("x", durable=True)
    async with control(broker) as policing:
        await put(policing, "q", {"max-length": 3, "alternate-exchange": "a"}, pattern="^(q|x)$")
        await put(policing, "o", {"max-length": 2}, pattern="", verb="operator-policy.put")
        fill(channel, "q", 5)
    getattr(broker, how)()
    broker.start()
    async with control(broker) as policing:
        row = await shown(policing, "q")
        assert (row["policy"], row["operator_policy"], row["messages_ready"]) == ("q", "o", 2)
        assert (await shown(policing, "x", "exchanges"))["policy"] == "q"
        (policy,) = (await policing.call("list", noun="policies"))["items"]
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
    async with control(broker) as policing:
        await ready(policing, "q", 2)
        await policing.call("policy.delete", vhost="/", name="p")
        assert json.loads((broker.data_dir / "policies.json").read_text()) == []


def test_it_starts_with_no_broken_policies_file(make_broker: Any) -> None:
    broker = make_broker(start=False)
    broker.data_dir.mkdir(parents=True, exist_ok=True)
    row = {"vhost": "/", "name": "p", "pattern": "(", "definition": {"max-length": 2}}
    (broker.data_dir / "policies.json").write_text(json.dumps([row]))
    broker.start(wait=False)
    assert broker.wait() == 78
    assert "policies.json: policy 'p' of vhost '/': pattern should be" in broker.log()


async def test_it_forgets_the_policies_of_a_deleted_vhost(policing: BrokerClient) -> None:
    await policing.call("vhost.put", name="brief")
    for verb in ("policy.put", "operator-policy.put"):
        await put(policing, "p", {"max-length": 1}, vhost="brief", verb=verb)
    await policing.call("vhost.delete", name="brief")
    await policing.call("vhost.put", name="brief")
    for noun in ("policies", "operator-policies"):
        assert (await policing.call("list", noun=noun, vhost="brief"))["items"] == []
    await policing.call("vhost.delete", name="brief")

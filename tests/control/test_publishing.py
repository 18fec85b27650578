"""Publishing over the control socket: when it is answered, and what is asked first."""

from __future__ import annotations

from typing import Any

import pytest

from broker.server.app import Broker
from broker.server.control import messaging_verbs
from broker.settings.bounds import PATTERN_STEPS_MAX
from management.broker_client import BrokerClient, BrokerError
from tests.inside import configure, put_user


async def publish(client: BrokerClient, name: str = "amq.default", **given: Any) -> Any:
    args = {"vhost": "/", "name": name, "routing_key": "q", "payload": b"x", **given}
    return await client.call("exchange.publish", **args)


async def refused(client: BrokerClient, **given: Any) -> BrokerError:
    with pytest.raises(BrokerError) as caught:
        await publish(client, **given)
    return caught.value


@pytest.mark.parametrize(
    ("mode", "waits"), [(2, True), ("2", True), (2.0, True), (1, False), ("1", False)]
)
async def test_a_persistent_message_is_on_disk_when_the_answer_comes(
    broker: Broker,
    client: BrokerClient,
    monkeypatch: pytest.MonkeyPatch,
    mode: Any,
    waits: bool,
) -> None:
    """However the number is written: what counts is how the message is stored."""
    broker.vhosts["/"].declare_queue("q", durable=True)
    synced = []
    wait = broker.synced

    async def noted(*, records: bool = False) -> None:
        synced.append(records)
        await wait(records=records)

    monkeypatch.setattr(broker, "synced", noted)
    try:
        await publish(client, properties={"delivery_mode": mode})
    except BrokerError as error:
        assert isinstance(mode, float), error
        return
    assert synced == ([True] if waits else [])


async def test_what_one_queue_refuses_is_refused_and_counted(
    broker: Broker, client: BrokerClient
) -> None:
    """As over AMQP: other queues of its route have it all the same."""
    vhost = broker.vhosts["/"]
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    small, _ = vhost.declare_queue("q", arguments=full)
    other, _ = vhost.declare_queue("other")
    for queue in ("q", "other"):
        vhost.bind("amq.direct", queue, "queue", "q", {})
    assert await publish(client, "amq.direct") == {"routed": True}
    error = await refused(client, name="amq.direct")
    assert (error.status, error.error) == (400, "bad_request")
    assert error.reason == "Unable to publish message. Check queue limits."
    assert (small.messages, other.messages) == (1, 2)
    exchange = vhost.exchanges["amq.direct"]
    assert (exchange.publish_in, exchange.refused) == (2, 1)
    assert await publish(client, routing_key="no queue") == {"routed": False}


async def test_the_right_is_asked_before_the_state_and_the_limits_of_the_node(
    broker: Broker, client: BrokerClient
) -> None:
    put_user(broker, "reader", "management")
    broker.access.put_permission("reader", "/", "", "", ".*")
    configure(broker, max_message_size=3)
    broker.watch.active.add("memory")
    for given in ({}, {"payload": b"1234"}):
        error = await refused(client, as_user="reader", **given)
        assert error.error == "not_authorised"
        assert "write access to exchange" in error.reason
    assert (await refused(client, as_user="guest")).error == "blocked"
    broker.watch.active.clear()
    assert "larger than configured max size 3" in (await refused(client, payload=b"1234")).reason


async def test_no_pattern_looks_at_a_routing_key_that_is_too_long(
    broker: Broker, client: BrokerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of megabytes would hold the loop for seconds."""
    put_user(broker, "writer", "management")
    pattern = f"(a|b|ab){{{PATTERN_STEPS_MAX // 4}}}"
    broker.access.put_topic_permission("writer", "/", "amq.topic", pattern, ".*")
    looked_at = []
    check = messaging_verbs.check_target

    def noted(rights: Any, vhost: Any, name: str, routing_key: str) -> Any:
        looked_at.append(routing_key)
        return check(rights, vhost, name, routing_key)

    monkeypatch.setattr(messaging_verbs, "check_target", noted)
    error = await refused(client, as_user="writer", name="amq.topic", routing_key="a" * 256)
    assert error.reason == "routing_key is longer than 255 bytes"
    assert not looked_at

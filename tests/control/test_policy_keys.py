"""Each policy key on a real broker: what it does to what is there and to what comes later."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pika
import pytest
from pika.exceptions import NackError

from broker.schema.policy_keys import KEYS
from management.broker_client import BrokerClient, BrokerError
from tests.appliance import Appliance
from tests.control.policed import (
    PERSISTENT,
    bodies,
    fill,
    put,
    ready,
    shown,
)
from tests.control.policy_values import GOOD
from tests.control.test_real_broker import connect, until

STREAM = {"x-queue-type": "stream"}
SEGMENT_SIZE = "x-stream-max-segment-size-bytes"


async def test_it_drops_heads_that_a_new_length_does_not_let_stay(
    policing: BrokerClient, channel: Any
) -> None:
    fill(channel, "length", 10)
    await put(policing, "length", {"max-length": 3})
    await ready(policing, "length", 3)
    channel.basic_publish("", "length", b"new")
    assert bodies(channel, "length") == [b"8", b"9", b"new"]


async def test_it_drops_heads_that_a_new_size_does_not_let_stay(
    policing: BrokerClient, channel: Any
) -> None:
    fill(channel, "size", 10, b"x" * 100)
    await put(policing, "size", {"max-length-bytes": 250})
    await ready(policing, "size", 2)


async def test_it_sheds_what_waits_behind_a_full_consumer(
    policing: BrokerClient, channel: Any
) -> None:
    fill(channel, "behind", 10)
    channel.basic_qos(prefetch_count=2)
    channel.basic_consume("behind", lambda *delivery: None)
    await ready(policing, "behind", 8)
    await put(policing, "behind", {"max-length": 3})
    await ready(policing, "behind", 3)
    assert (await shown(policing, "behind"))["messages_unacknowledged"] == 2


async def test_it_refuses_instead_where_overflow_says_so(
    policing: BrokerClient, channel: Any
) -> None:
    fill(channel, "overflow", 5)
    await put(policing, "overflow", {"max-length": 3, "overflow": "reject-publish"})
    await ready(policing, "overflow", 5)
    with pytest.raises(NackError):
        channel.basic_publish("", "overflow", b"too many")
    await put(policing, "overflow", {"max-length": 3})
    await ready(policing, "overflow", 3)


async def test_it_expires_messages_that_are_there(policing: BrokerClient, channel: Any) -> None:
    fill(channel, "ttl", 5)
    await put(policing, "ttl", {"message-ttl": 1})
    await ready(policing, "ttl", 0)
    channel.basic_publish("", "ttl", b"another")
    await ready(policing, "ttl", 0)


async def test_it_keeps_to_a_messages_own_ttl_when_the_queues_is_gone(
    policing: BrokerClient, channel: Any
) -> None:
    channel.queue_declare("own-ttl", durable=True)
    await put(policing, "own-ttl", {"message-ttl": 3_600_000})
    brief = pika.BasicProperties(expiration="300")
    channel.basic_publish("", "own-ttl", b"", brief)
    channel.basic_publish("", "own-ttl", b"")
    await policing.call("policy.delete", vhost="/", name="own-ttl")
    await ready(policing, "own-ttl", 1)


async def test_it_deletes_unused_queues_and_starts_the_time_anew(
    policing: BrokerClient, channel: Any
) -> None:
    channel.queue_declare("unused-kept", durable=True)
    await put(policing, "unused-kept", {"expires": 400})
    # The time that began is not the one that counts.
    await put(policing, "unused-kept", {"expires": 3_600_000})
    channel.queue_declare("unused-gone", durable=True)
    await put(policing, "unused-gone", {"expires": 500})

    async def look() -> Any:
        rows = (await policing.call("list", noun="queues", name="unused-"))["items"]
        return {row["name"] for row in rows} & {"unused-kept", "unused-gone"}

    assert await until(look, lambda names: "unused-gone" not in names) == {"unused-kept"}


async def test_it_routes_through_an_alternate_exchange_at_once(
    policing: BrokerClient, channel: Any
) -> None:
    channel.exchange_declare("with-alternate", "direct")
    channel.exchange_declare("the-alternate", "fanout")
    channel.queue_declare("alternate-queue")
    channel.queue_bind("alternate-queue", "the-alternate")
    arguments = {"noun": "queues", "vhost": "/", "name": "alternate-queue"}

    async def routed() -> bool:
        before = (await policing.call("item", **arguments))["messages_ready"]
        with contextlib.suppress(pika.exceptions.UnroutableError):
            channel.basic_publish("with-alternate", "nowhere", b"", mandatory=True)
        return bool((await policing.call("item", **arguments))["messages_ready"] - before)

    assert not await routed()
    await put(policing, "with-alternate", {"alternate-exchange": "the-alternate"})
    assert await routed()
    row = await shown(policing, "with-alternate", "exchanges")
    assert row["policy"] == "with-alternate"
    assert row["effective_policy_arguments"] == ["alternate-exchange"]
    await policing.call("policy.delete", vhost="/", name="with-alternate")
    assert not await routed()


async def test_it_dead_letters_what_a_new_limit_does_not_let_stay(
    policing: BrokerClient, channel: Any
) -> None:
    fill(channel, "policed-letters", 5)
    channel.queue_declare("policed-dead", durable=True)
    definition = {
        "max-length": 2,
        "dead-letter-exchange": "",
        "dead-letter-routing-key": "policed-dead",
    }
    await put(policing, "policed-letters", definition)
    await ready(policing, "policed-dead", 3)
    assert bodies(channel, "policed-dead") == [b"0", b"1", b"2"]
    assert bodies(channel, "policed-letters") == [b"3", b"4"]


async def test_it_sends_dead_letters_that_a_full_queue_refused_where_the_policy_says_now(
    policing: BrokerClient, channel: Any
) -> None:
    refusing = {"x-max-length": 1, "x-overflow": "reject-publish"}
    fill(channel, "policed-full", 1, b"filler", arguments=refusing)
    channel.queue_declare("policed-other", durable=True)
    fill(channel, "policed-refused", 5)
    definition = {"max-length": 2, "dead-letter-exchange": ""}
    await put(policing, "policed-refused", definition | {"dead-letter-routing-key": "policed-full"})
    await ready(policing, "policed-refused", 2)
    assert (await shown(policing, "policed-refused"))["messages_unacknowledged"] == 3
    await put(
        policing, "policed-refused", definition | {"dead-letter-routing-key": "policed-other"}
    )
    await ready(policing, "policed-other", 3)
    assert bodies(channel, "policed-other") == [b"0", b"1", b"2"]
    assert bodies(channel, "policed-full") == [b"filler"]


async def test_it_keeps_the_dead_letter_exchange_of_the_declaration(
    policing: BrokerClient, channel: Any
) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "own-dead"}
    fill(channel, "own-letters", 3, arguments=arguments)
    for name in ("own-dead", "other-dead"):
        channel.queue_declare(name)
    definition = {"max-length": 1, "dead-letter-routing-key": "other-dead"}
    await put(policing, "own-letters", definition)
    await ready(policing, "own-dead", 2)


async def test_it_limits_how_often_a_message_comes_back(
    policing: BrokerClient, channel: Any
) -> None:
    fill(channel, "returns", 1)
    await put(policing, "returns", {"delivery-limit": 1})
    for _ in range(2):
        delivery, _, _ = channel.basic_get("returns")
        assert delivery is not None
        channel.basic_reject(delivery.delivery_tag, requeue=True)
    await ready(policing, "returns", 0)


async def test_it_confirms_when_the_policy_says(
    policing: BrokerClient, connection: Any, shared_broker: Appliance
) -> None:
    channel = connection.channel()
    channel.queue_declare("confirmed-on", durable=True)
    await put(policing, "confirmed-on", {"confirm-on": "ack"})
    told: list[bool] = []
    loop = asyncio.get_running_loop()

    def publish() -> None:
        with contextlib.closing(connect(shared_broker)) as mine:
            publisher = mine.channel()
            publisher.confirm_delivery()
            publisher.basic_publish("", "confirmed-on", b"x", PERSISTENT)
            told.append(True)

    published = loop.run_in_executor(None, publish)
    await ready(policing, "confirmed-on", 1)

    async def waiting() -> Any:
        rows = (await policing.call("list", noun="channels"))["items"]
        return [row for row in rows if row["messages_unconfirmed"]]

    await until(waiting, bool)
    assert not told
    channel.basic_get("confirmed-on", auto_ack=True)
    await published
    assert told


async def test_it_drops_what_a_new_age_does_not_let_stay(
    policing: BrokerClient, channel: Any
) -> None:
    fill(channel, "aged", 12, b"x" * 1024, arguments={**STREAM, SEGMENT_SIZE: 4096})
    await put(policing, "aged", {"max-age": "1s"})
    await until(lambda: shown(policing, "aged"), lambda row: row["messages_ready"] <= 3)


async def test_it_drops_segments_that_a_new_length_does_not_let_stay(
    policing: BrokerClient, channel: Any
) -> None:
    fill(channel, "shortened", 12, b"x" * 1024, arguments={**STREAM, SEGMENT_SIZE: 4096})
    await put(policing, "shortened", {"max-length": 6})
    await until(lambda: shown(policing, "shortened"), lambda row: 0 < row["messages_ready"] <= 6)


async def test_it_begins_segments_at_the_size_of_the_policy(
    policing: BrokerClient, channel: Any
) -> None:
    fill(channel, "segmented", 9, b"x" * 1024, arguments=STREAM)
    assert (await shown(policing, "segmented"))["segments"] == 1
    await put(policing, "segmented", {"stream-max-segment-size-bytes": 4096})
    fill(channel, "segmented", 9, b"x" * 1024, arguments=STREAM)
    assert (await shown(policing, "segmented"))["segments"] >= 3


async def test_it_holds_messages_back_while_a_policy_says_so(
    policing: BrokerClient, channel: Any
) -> None:
    channel.exchange_declare("held-back", "fanout")
    channel.queue_declare("held-queue")
    channel.queue_bind("held-queue", "held-back")
    later = pika.BasicProperties(headers={"x-delay": 1_500})
    channel.basic_publish("held-back", "", b"at once", later)
    assert (await shown(policing, "held-queue"))["messages_ready"] == 1
    await put(policing, "held-back", {"delayed-message": True})
    channel.basic_publish("held-back", "", b"later", later)
    assert (await shown(policing, "held-queue"))["messages_ready"] == 1
    row = await shown(policing, "held-back", "exchanges")
    assert row["effective_policy_arguments"] == ["delayed-message"]
    # What is held still comes when the policy is gone.
    await policing.call("policy.delete", vhost="/", name="held-back")
    channel.basic_publish("held-back", "", b"at once again", later)
    assert (await shown(policing, "held-queue"))["messages_ready"] == 2
    await ready(policing, "held-queue", 3)


@pytest.mark.parametrize("key", [row.name for row in KEYS.values() if row.rule == "none"])
async def test_it_keeps_and_shows_a_key_without_effect(
    policing: BrokerClient, channel: Any, key: str
) -> None:
    queue = f"without-effect-{key}"
    channel.queue_declare(queue, durable=True)
    await put(policing, queue, {key: GOOD[key]})
    row = await shown(policing, queue)
    assert row["effective_policy_definition"] == {key: GOOD[key]}
    assert row["effective_policy_arguments"] == []
    fill(channel, queue, 2)
    assert bodies(channel, queue) == [b"0", b"1"]
    channel.queue_delete(queue)


@pytest.mark.parametrize("key", ["history-max-age", "history.length"])
async def test_it_names_the_keys_of_history_instead_of_an_unknown_one(
    policing: BrokerClient, key: str
) -> None:
    for verb in ("policy.put", "operator-policy.put"):
        with pytest.raises(BrokerError, match="begin with history there are history, ") as caught:
            await put(policing, "history", {key: "7D"}, verb=verb)
        assert caught.value.status == 400

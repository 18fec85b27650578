"""What a transfer is refused for, what a preview counts, and what ends a transfer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from management.broker_client import BrokerClient, BrokerError
from tests.appliance import Appliance
from tests.control.test_real_broker import control
from tests.control.transferring import bodies, drained, filled, held, queue, start, until


@pytest.fixture
async def client(shared_broker: Appliance) -> AsyncIterator[BrokerClient]:
    async with control(shared_broker) as client:
        yield client


BAD: list[tuple[dict[str, Any], str]] = [
    ({"mode": "shift"}, "Invalid enum value 'shift'"),
    ({"routing_key": "("}, "routing_key: invalid regular expression"),
    ({"routing_key": "(?=a)"}, "routing_key: invalid regular expression"),
    ({"routing_key": "x" * 5000}, "characters"),
    ({"header": "a"}, "needs both 'header' and 'value'"),
    ({"value": "a"}, "needs both 'header' and 'value'"),
    ({"header": "", "value": ""}, "header must be a name"),
    ({"header": "h" * 256, "value": "a"}, "header must be a name"),
    ({"header": "h", "value": "v" * 1025}, "value must have 1024 bytes at most"),
    ({"older_than": -1}, "older_than must be a number of seconds"),
    ({"newer_than": 2**60}, "newer_than must be a number of seconds"),
    ({"older_than": 60, "newer_than": 60}, "older_than must be less than newer_than"),
    ({"limit": 0}, "limit must be 1 or more"),
    ({"limit": "many"}, "limit"),
    ({"target": ""}, "no name"),
    ({"target": "nothing.there"}, "no queue 'nothing.there'"),
    ({"target": "nothing.there", "target_type": "exchange"}, "no exchange 'nothing.there'"),
    ({"target": "amq.default", "target_type": "exchange"}, "name the queue"),
    ({"target_vhost": "nothing"}, "vhost_not_found"),
    ({"name": "nothing.there"}, "no queue 'nothing.there'"),
    ({"colour": "red"}, "unknown field `colour`"),
]


@pytest.mark.parametrize(("wrong", "text"), BAD, ids=[str(each[0])[:40] for each in BAD])
async def test_bad_input_is_refused_in_clear_words(
    client: BrokerClient, channel: BlockingChannel, wrong: dict[str, Any], text: str
) -> None:
    source, target = queue(channel), queue(channel)
    asked: dict[str, Any] = {"vhost": "/", "name": source, "mode": "move", "target": target}
    with pytest.raises(BrokerError) as refused:
        await client.call("transfer.start", **{**asked, **wrong})
    assert text in str(refused.value)


async def test_a_queue_is_not_moved_onto_itself(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    source = queue(channel)
    with pytest.raises(BrokerError, match="source and target are the same queue"):
        await start(client, "move", source, source)


async def test_a_preview_counts_and_changes_nothing(
    client: BrokerClient, channel: BlockingChannel
) -> None:
    source = filled(channel, 30)
    channel.basic_reject(channel.basic_get(source)[0].delivery_tag, requeue=True)
    asked: dict[str, Any] = {"vhost": "/", "name": source, "header": "kind", "value": "even"}
    assert await client.call("transfer.preview", **asked) == {
        "looked": 30,
        "matched": 15,
        "ready": 30,
    }
    found = await client.call("transfer.preview", **asked, count=10)
    assert found == {"looked": 10, "matched": 5, "ready": 30}
    with pytest.raises(BrokerError, match="count must be from 1 to 10000"):
        await client.call("transfer.preview", **asked, count=0)
    stream = filled(channel, 7, **{"x-queue-type": "stream"})
    found = await client.call("transfer.preview", **{**asked, "name": stream})
    assert (found["looked"], found["matched"]) == (7, 4)
    assert drained(channel, source) == [(b"0", True)] + [(b"%d" % n, False) for n in range(1, 30)]


@pytest.mark.parametrize("deleted", ["source", "target"])
async def test_a_deleted_end_fails_the_transfer_and_says_which(
    client: BrokerClient, channel: BlockingChannel, deleted: str
) -> None:
    ends = {
        "source": filled(channel, 5),
        "target": queue(channel, **{"x-max-length": 2, "x-overflow": "reject-publish"}),
    }
    started = await start(client, "move", ends["source"], ends["target"])
    await until(client, started["id"], "blocked")
    channel.queue_delete(ends[deleted])
    row = await until(client, started["id"], "failed")
    assert f"queue '{ends[deleted]}'" in row["reason"] and "deleted" in row["reason"]
    if deleted == "target":
        assert held(channel, ends["source"]) == bodies(2, 3, 4)
    else:
        assert held(channel, ends["target"]) == bodies(0, 1)

"""A history that is indexed by as many keys as are allowed, of an exchange with much traffic: what
the index takes is bounded, and the limit is shown."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.schema.index_keys import KEYS_MOST
from broker.store.keys.series import WAITING_MOST
from management.broker_client import BrokerClient, BrokerError
from tests.amqp.raw import Client
from tests.appliance import Appliance
from tests.control.own_vhost import own_vhost
from tests.control.test_real_broker import control, until

HISTORY = "amq.history"
EXCHANGE = "busy"
HEADERS = [f"key-{number}" for number in range(KEYS_MOST - 2)]
ALL = ["message_id", "correlation_id", *(f"header:{name}" for name in HEADERS)]
COUNT = 1500
FILE_ITEMS = 1024
SAME = "the same in all"


async def put(client: BrokerClient, vhost: str, name: str, pattern: str, keys: list[str]) -> None:
    definition = {"history": "headers", "history-keys": keys}
    await client.call("policy.put", vhost=vhost, name=name, pattern=pattern, definition=definition)


async def index_of(client: BrokerClient, vhost: str = "/") -> Any:
    row = await client.call("item", noun="queues", vhost=vhost, name=HISTORY)
    return row["stream"]["index"]


def items(index: Any) -> int:
    return sum(row["items"] for row in index["files"].values())


async def hits(client: BrokerClient, key: str, value: str, **more: Any) -> list[int]:
    """Offsets of a complete answer, of at most ten if `max` does not say otherwise. On a busy
    machine the index may be behind for a while."""
    wanted = {"vhost": "/", "name": HISTORY, "key": key, "value": value, **more}
    answer = await until(
        lambda: client.call("stream.search", **wanted), lambda each: bool(each["complete"])
    )
    return [message["offset"] for message in answer["messages"]]


def publish_all(busy: Appliance) -> None:
    """Messages with all keys, and with headers that are no keys."""
    with Client.open((busy.host, busy.amqp_port)) as amqp:
        amqp.call(1, "exchange.declare", exchange=EXCHANGE, type="fanout")
        amqp.call(1, "confirm.select")
        for number in range(COUNT):
            headers = {name: f"{name} of {number}" for name in HEADERS}
            headers |= {f"other-{each}": number for each in range(5)}
            identity = {"message_id": f"m{number}", "correlation_id": SAME}
            amqp.publish(1, EXCHANGE, "", headers=headers, **identity)
        while amqp.expect("basic.ack", 1).delivery_tag < COUNT:
            pass
        amqp.close()


async def test_a_history_with_all_keys_takes_an_item_for_each_and_its_files_stay_bounded(
    tmp_path: Path,
) -> None:
    busy = Appliance("broker", tmp_path, stream_index_items=FILE_ITEMS).start()
    try:
        async with control(busy) as client:
            await put(client, "/", "all", f"^{EXCHANGE}$", ALL)
            await asyncio.to_thread(publish_all, busy)
            last = COUNT - 1
            wanted = {f"header:{name}": f"{name} of {last}" for name in HEADERS}
            for key, value in {"message_id": f"m{last}", **wanted}.items():
                assert await hits(client, key, value) == [last]
            assert await hits(client, "correlation_id", SAME) == list(range(last, last - 10, -1))
            index = await until(
                lambda: index_of(client), lambda each: items(each) == COUNT * KEYS_MOST
            )
            assert sorted(index["keys"]) == sorted(ALL)
            states = index["files"]
            assert states["unsealed"]["files"] <= WAITING_MOST + 1
            assert all(row["items"] <= row["files"] * FILE_ITEMS for row in states.values())
            with pytest.raises(BrokerError, match="stream_search_results_max"):
                await hits(client, "correlation_id", SAME, max=10**9)
    finally:
        busy.close()


async def test_keys_beyond_the_limit_are_refused_and_those_of_several_policies_are_a_problem(
    shared_broker: Appliance,
) -> None:
    async with control(shared_broker) as client, own_vhost(client, "keys") as vhost:

        async def texts() -> list[str]:
            answer = await client.call("problems", page=1, page_size=500)
            return [row["text"] for row in answer["items"] if f"'{vhost}'" in row["text"]]

        with pytest.raises(BrokerError, match=f"{KEYS_MOST + 1} keys, at most {KEYS_MOST}"):
            await put(client, vhost, "too many", "^orders$", [*ALL, "header:one-more"])
        for keys, why in ((["*"], "is no key"), ([], "it is empty"), ([""], "is no key")):
            with pytest.raises(BrokerError, match=why):
                await put(client, vhost, "any", "^orders$", keys)
        await client.call("queue.declare", vhost=vhost, name="orders", durable=True)
        await put(client, vhost, "all", "^amq.fanout$", ALL)
        assert await texts() == []
        await put(client, vhost, "others", "^orders$", ["header:late", "message_id"])
        (text,) = await until(texts, bool)
        assert f"name {KEYS_MOST + 1} keys" in text
        assert text.endswith("without header:late")
        index = await until(
            lambda: index_of(client, vhost), lambda each: len(each["keys"]) == KEYS_MOST
        )
        assert sorted(index["keys"]) == sorted(ALL)
        await client.call("policy.delete", vhost=vhost, name="others")
        await until(texts, lambda found: not found)

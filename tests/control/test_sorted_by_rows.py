"""Lists of every noun by every key of a row; equals of lists kept in order stay in that order."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from broker.schema.columns import value_at
from broker.schema.control_schema import NOUNS
from management.broker_client import BrokerClient
from tests.amqp import raw
from tests.appliance import Appliance
from tests.bench.lists import leaves

NAMES = ("b", "a", "d", "c")
ELSEWHERE = {
    # Another name or rank stands for it.
    "user_provided_name",
    "connection_details.user_provided_name",
    "channel_details.user_provided_name",
    "trouble",
}
KINDS: tuple[dict[str, Any], ...] = (
    {"x-queue-type": "stream"},
    {"x-message-deduplication": True, "x-cache-size": 10},
    {"x-max-priority": 3},
    {"x-max-length": 7, "x-overflow": "reject-publish"},
    {"x-message-deduplication": True, "x-cache-size": 9},
)
"""Queues whose rows have fields that others have not."""

KEPT_IN_ORDER = {"queues", "exchanges", "bindings", "connections", "channels", "consumers"}
FROM_FIRST = {"x-stream-offset": "first"}
VIEWER = "sorted-viewer"
LOOKS = 10
"""Figures change after the traffic of other tests, also between the sort and the row."""


def definitions() -> dict[str, Any]:
    """Some of each setting, in no order."""
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    vhosts = [f"sorted-{name}" for name in NAMES]
    return {
        "vhosts": [
            {"name": vhost, "metadata": {"description": vhost[-1] * place}}
            for place, vhost in enumerate(vhosts)
        ],
        "users": [
            {"name": name, "password_hash": "", "tags": "management"}
            for name in (*(f"sorted-{name}" for name in NAMES), VIEWER)
        ],
        "permissions": [{"vhost": "sorted-b", "user": VIEWER, **rights}]
        + [{"vhost": vhost, "user": "guest", **rights} for vhost in vhosts]
        + [{"vhost": vhost, "user": vhost, **rights, "read": vhost[-1]} for vhost in vhosts],
        "topic_permissions": [
            {"vhost": vhost, "user": vhost, "exchange": "amq.topic", "write": ".*", "read": ""}
            for vhost in vhosts
        ],
        "parameters": [
            {
                "vhost": vhost,
                "component": "vhost-limits",
                "name": "limits",
                "value": {"max-queues": 12},
            }
            for vhost in vhosts
        ],
        "global_parameters": [{"name": f"sorted-{name}", "value": name} for name in NAMES],
        "policies": [
            {
                "vhost": "sorted-b" if place % 3 else "sorted-d",
                "name": f"{name}{place}",
                "pattern": f"^{name}",
                "definition": {"max-length": 10 + place},
                "priority": place % 3,
                "apply-to": "all",
            }
            for place, name in enumerate(NAMES * 2)
        ],
        "queues": [
            {
                "vhost": vhost,
                "name": name,
                "durable": name > "b",
                "auto_delete": False,
                "arguments": {"x-dead-letter-exchange": ""} if name < "c" else {},
            }
            for vhost in vhosts
            for name in NAMES
        ]
        + [
            {
                "vhost": "sorted-d",
                "name": f"e{place}",
                "durable": True,
                "auto_delete": False,
                "arguments": arguments,
            }
            for place, arguments in enumerate(KINDS)
        ],
        "exchanges": [
            {
                "vhost": "sorted-b",
                "name": name,
                "type": kind,
                "durable": True,
                "auto_delete": False,
                "arguments": arguments,
            }
            for name, kind, arguments in (
                ("delays", "x-delayed-message", {"x-delayed-type": "topic"}),
                ("filters", "fanout", KINDS[1]),
                ("kinds", "headers", {"alternate-exchange": "amq.fanout"}),
            )
        ],
        "bindings": [
            {
                "vhost": "sorted-b",
                "source": "kinds",
                "destination": name,
                "destination_type": "queue",
                "routing_key": "",
                "arguments": {"x-match": "all", "place": {"of": place}, name: [place]},
            }
            for place, name in enumerate(NAMES)
        ],
    }


@contextlib.contextmanager
def clients(address: tuple[str, int]) -> Iterator[None]:
    """Connections with unequal numbers of channels, consumers and messages."""
    with contextlib.ExitStack() as stack:
        publishers = []
        for place, vhost in enumerate(("sorted-d", "sorted-b", "sorted-d")):
            numbers = range(place + 1, 0, -1)
            client = raw.Client.open(address, virtual_host=vhost, channels=numbers)
            stack.callback(client.socket.close)
            for number in numbers:
                client.call(number, "basic.qos", prefetch_count=7 - number)
                for tag in NAMES[: number + 1]:
                    queue = NAMES[(place + number) % 4]
                    client.call(number, "basic.consume", queue=queue, consumer_tag=tag)
                publishers.append((client, number))
        other = raw.Client.open(address, virtual_host="sorted-d", channels=[1, 2, 3])
        stack.callback(other.socket.close)
        for queue in ("mine", "also mine"):
            other.call(1, "queue.declare", queue=queue, exclusive=True)
        other.call(1, "basic.consume", queue="mine", consumer_tag="m", exclusive=True)
        for number, tag in ((2, "s"), (3, "t")):
            other.call(number, "basic.qos", prefetch_count=number)
            other.call(number, "basic.consume", queue="e0", consumer_tag=tag, arguments=FROM_FIRST)
        for client, number in publishers:
            for _ in range(number * 2):
                client.publish(number, "", "c", b"x")
        yield


@pytest.fixture
async def client(shared_broker: Appliance) -> AsyncIterator[BrokerClient]:
    client = BrokerClient(shared_broker.data_dir / "control.sock")
    await client.call("definitions.import", definitions=definitions())
    try:
        with clients(("127.0.0.1", shared_broker.amqp_port)):
            yield client
    finally:
        for name in NAMES:
            await client.call("vhost.delete", name=f"sorted-{name}")
            await client.call("user.delete", name=f"sorted-{name}")
            await client.call("global-parameter.delete", name=f"sorted-{name}")
        await client.call("user.delete", name=VIEWER)
        await client.close()


def rank(value: Any) -> tuple[int, Any]:
    """The order of values of any type; nothing and what is empty come first."""
    if value in (None, "", [], {}):
        return 0, 0
    if isinstance(value, int | float):
        return 1, value
    return (2, value) if isinstance(value, str) else (4, str(value))


async def test_rows_come_in_the_order_of_what_they_show(client: BrokerClient) -> None:
    for noun, facts in NOUNS.items():
        if facts.list_tag == "appliance":
            continue
        plain = (await client.call("list", noun=noun))["items"]
        if not plain:
            continue
        keys = [key.split(".") for key in facts.key]
        order = {str([value_at(row, key) for key in keys]): at for at, row in enumerate(plain)}
        fields = dict.fromkeys(key for row in plain for key in leaves(row) if key not in ELSEWHERE)
        for field in fields:
            for reverse in (False, True):
                stays = noun in KEPT_IN_ORDER and not reverse
                args = {"noun": noun, "sort": field, "sort_reverse": reverse}
                for _ in range(LOOKS):
                    found = (await client.call("list", **args, page=1, page_size=500))["items"]
                    values = [value_at(row, field.split(".")) for row in found]
                    rows = [str([value_at(row, key) for key in keys]) for row in found]
                    places = [order.get(row, -1) for row in rows] if stays else []
                    if is_in_order(values, places, reverse):
                        break
                else:
                    raise AssertionError((noun, field, reverse, values, places))


def is_in_order(values: list[Any], places: list[int], reverse: bool) -> bool:
    """Whether values are sorted, and equals of them as they are in a list that is not sorted.
    `places` are those of their rows there, if they count; -1 is one that came later."""
    shown = [rank(value) for value in values]
    equals: dict[str, list[int]] = {}
    for value, place in zip(values, places, strict=False):
        if place >= 0:
            equals.setdefault(str(value), []).append(place)
    return shown == sorted(shown, reverse=reverse) and all(
        same == sorted(same) for same in equals.values()
    )


@pytest.mark.parametrize("noun", ["queues", "consumers", "policies", "vhost-limits", "vhosts"])
async def test_a_user_of_one_vhost_gets_what_is_in_it(client: BrokerClient, noun: str) -> None:
    name = "name" if noun == "vhosts" else "vhost"
    # Consumers of other users' connections are for monitoring.
    tag = {"policies": "policymaker", "vhost-limits": "policymaker", "consumers": "monitoring"}
    tags = [tag.get(noun, "management")]
    await client.call("user.put", name=VIEWER, password_hash="", tags=tags)
    everything = (await client.call("list", noun=noun))["items"]
    path = ["queue", "vhost"] if noun == "consumers" else [name]
    expected = [row for row in everything if value_at(row, path) == "sorted-b"]
    seen = await client.call("list", noun=noun, as_user=VIEWER)
    assert 0 < len(expected) < len(everything)
    assert seen["total_count"] == len(expected)
    assert [value_at(row, path) for row in seen["items"]] == ["sorted-b"] * len(expected)


def is_ours(row: dict[str, Any]) -> bool:
    """Whether it is in a vhost of this module. What other tests left elsewhere may go meanwhile."""
    vhost = row["vhost"] if "vhost" in row else row["queue"]["vhost"]
    return str(vhost).startswith("sorted-")


async def ours(client: BrokerClient, noun: str, **args: Any) -> list[dict[str, Any]]:
    """The rows of a list that are in vhosts of this module."""
    return [row for row in (await client.call("list", noun=noun, **args))["items"] if is_ours(row)]


async def test_lists_of_several_vhosts_follow_what_is_declared_and_deleted(
    client: BrokerClient,
) -> None:
    for noun, verb in (("queues", "queue"), ("exchanges", "exchange")):
        before = await ours(client, noun)
        here: dict[str, Any] = {"vhost": "sorted-c", "name": "one more"}
        await client.call(f"{verb}.declare", **here, durable=True)
        during = await ours(client, noun)
        named = [(row["vhost"], row["name"]) for row in during]
        assert named == sorted(
            [*((row["vhost"], row["name"]) for row in before), (*here.values(),)]
        )
        await client.call(f"{verb}.delete", **here)
        after = await ours(client, noun)
        assert [row["name"] for row in after] == [row["name"] for row in before]


async def test_lists_of_clients_follow_those_that_come_and_go(
    client: BrokerClient, shared_broker: Appliance
) -> None:
    """Their order and names are kept while nothing changes; each list is asked for three times, as
    it is picked from, then sorted as a whole, then kept."""
    filters: dict[str, dict[str, Any]] = {
        "connections": {"sort": "name"},
        "channels": {"sort": "number"},
        "consumers": {"sort": "consumer_tag", "name": "came later"},
    }

    async def counts() -> list[int]:
        found = []
        for noun, more in filters.items():
            for _ in range(3):
                answer = await client.call("list", noun=noun, vhost="sorted-c", page=1, **more)
            found.append(answer["filtered_count"])
        return found

    address = ("127.0.0.1", shared_broker.amqp_port)
    assert await counts() == [0, 0, 0]
    late = raw.Client.open(address, virtual_host="sorted-c", channels=[1])
    with contextlib.closing(late.socket):
        assert await counts() == [1, 1, 0]
        late.call(2, "channel.open")
        assert await counts() == [1, 2, 0]
        late.call(2, "basic.consume", queue="a", consumer_tag="came later")
        late.call(1, "basic.consume", queue="b", consumer_tag="came later, too")
        assert await counts() == [1, 2, 2]
        late.call(2, "basic.cancel", consumer_tag="came later")
        assert await counts() == [1, 2, 1]
        await client.call("queue.delete", vhost="sorted-c", name="b")
        late.expect("basic.cancel", channel=1)
        assert await counts() == [1, 2, 0]
        late.call(2, "channel.close", reply_code=200, reply_text="", class_id=0, method_id=0)
        assert await counts() == [1, 1, 0]
    until = time.monotonic() + 30
    while await counts() != [0, 0, 0]:
        assert time.monotonic() < until


@pytest.mark.parametrize("use_regex", [False, True])
async def test_channels_and_consumers_are_found_by_their_names_and_their_clients(
    client: BrokerClient, use_regex: bool
) -> None:
    for noun, key in (("channels", "name"), ("consumers", "consumer_tag")):
        plain = await ours(client, noun)
        assert plain
        for wanted in ("1", "c", "nothing of the kind"):
            found = await ours(client, noun, name=wanted, use_regex=use_regex)
            expected = [row[key] for row in plain if wanted in row[key]]
            assert [row[key] for row in found] == expected

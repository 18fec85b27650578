"""Routes that a connection remembers: each publish goes where its exchange and key say now."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from broker.kernel.contracts import Exchange
from tests.amqp import raw
from tests.amqp.raw import Client
from tests.amqp.wired import Wired

FEW = 300
"""There is a place for each, whatever their hashes are."""
MANY = 5_000
"""More than a connection remembers (`GROUPS_MAX` times `PLACES` of `broker.wire.route_memo`)."""


class Asked(dict[bytes, Any]):
    """Routes, and how often each was asked for."""

    def __init__(self, routes: dict[bytes, Any]) -> None:
        super().__init__(routes)
        self.times: Counter[bytes] = Counter()

    def __getitem__(self, key: bytes) -> Any:
        self.times[key] += 1
        return super().__getitem__(key)


@pytest.fixture
def wired(tmp_path: Path) -> Iterator[Wired]:
    found = Wired(tmp_path)
    yield found
    found.stop()


def test_a_publisher_to_some_hundred_keys_has_each_looked_up_once(wired: Wired) -> None:
    queues = [wired.queue() for _ in range(FEW)]
    asked = wired.wire.routes = Asked(wired.wire.routes)
    for _ in range(3):
        for queue in queues:
            wired.publish(queue.name)
    wired.run()
    assert {queue.messages_ready for queue in queues} == {3}
    assert set(asked.times.values()) == {1}
    assert len(asked.times) == FEW


def test_the_channels_of_a_connection_share_what_was_looked_up(wired: Wired) -> None:
    queue = wired.queue()
    asked = wired.wire.routes = Asked(wired.wire.routes)
    wired.publish(queue.name)
    wired.open_channel()
    wired.publish(queue.name)
    wired.run()
    assert queue.messages_ready == 2
    assert asked.times == {queue.name.encode(): 1}


def test_messages_are_counted_for_the_route_they_took(wired: Wired) -> None:
    one, other = wired.queue(), wired.queue()
    routes = wired.wire.routes
    routes[b"alias"] = routes[one.name.encode()]
    for _ in range(2):
        for name in (one.name, "alias", other.name, one.name):
            wired.publish(name)
    wired.run()
    counts = {queues[0].name: count for (_, queues), count in wired.channel.published_to().items()}
    assert counts == {one.name: 6, other.name: 2}
    wired.publish(other.name)
    assert sum(wired.channel.published_to().values()) == 9


def test_counts_of_a_route_are_kept_while_others_change_the_topology(wired: Wired) -> None:
    queue = wired.queue()
    for _ in range(MANY):
        wired.topology.changed()
        wired.publish(queue.name)
    wired.run()
    assert list(wired.channel.published_to().values()) == [MANY]


def test_routes_of_older_topologies_do_not_keep_their_queues(wired: Wired) -> None:
    """Each held its own tuple of its queues: 16 MiB for one route to a thousand queues."""
    exchange, queues = Exchange("e"), [wired.queue() for _ in range(10)]
    most = 0
    for _ in range(1_900):
        wired.topology.changed()
        # Equal to the last one, and another object.
        wired.wire.routes[b"all"] = exchange, tuple(queues)
        wired.publish("all")
        most = max(most, sys.getrefcount(queues[0]))
    wired.run()
    assert most < 900
    assert list(wired.channel.published_to().values()) == [1_900]


def test_of_very_many_routes_the_counts_of_the_last_thousand_are_kept(wired: Wired) -> None:
    first, second = wired.queue(), wired.queue()
    routes = wired.wire.routes
    for number in range(MANY):
        # Different routes to the same two queues.
        routes[f"{number}".encode()] = Exchange(f"e{number}"), (first, second)
        wired.publish(f"{number}")
    wired.run()
    counts = wired.channel.published_to()
    assert set(counts.values()) == {1}
    assert 1024 <= len(counts) <= 2048
    assert {exchange.name for exchange, _ in counts} >= {
        f"e{number}" for number in range(MANY - 1024, MANY)
    }


@pytest.mark.parametrize("count", [FEW, MANY])
def test_each_message_goes_where_its_key_is_bound_at_that_moment(
    count: int, client: Client
) -> None:
    exchange, *queues = (f"known-{uuid4().hex[:8]}" for _ in range(4))
    client.call(1, "exchange.declare", exchange=exchange, type="direct")
    for queue in queues:
        client.call(1, "queue.declare", queue=queue, exclusive=True)
        client.call(1, "basic.consume", queue=queue, consumer_tag=queue, no_ack=True)
    keys = [f"k{number}" for number in range(count)]

    def to_all(name: str, moved: int) -> None:
        for number, key in enumerate(keys):
            queue = queues[(number + moved) % len(queues)]
            client.send_method(1, name, queue=queue, exchange=exchange, routing_key=key)
        assert client.read_names(count) == [f"{name}-ok"] * count

    for moved in range(2):
        to_all("queue.bind", moved)
        client.send(b"".join(raw.publish(1, exchange, key, key.encode()) for key in keys * 2))
        found = Counter(
            (one.method.fields["consumer_tag"], one.body)
            for one in client.expect_messages(2 * count)
        )
        assert found == {
            (queues[(number + moved) % len(queues)], key.encode()): 2
            for number, key in enumerate(keys)
        }
        if not moved:
            to_all("queue.unbind", moved)
            client.publish(1, exchange, keys[0], b"nowhere", mandatory=True)
            client.expect_message("basic.return")

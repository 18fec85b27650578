"""Limits of queues and exchanges that a setting says: what happens at them, in words that name the
setting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.amqp import raw, streams
from tests.amqp.limited_queues import fill, limited
from tests.amqp.raw import Client, Message
from tests.amqp.streams import Reader, connect, until
from tests.amqp.test_pausing import ask, row
from tests.appliance import Appliance

BOUNDS = {
    "consumers_per_channel_max": 3,
    "stream_filter_values_max": 3,
    "stream_filter_bytes_max": 256,
    "stream_offsets_max": 2,
    "refused_backlog_max": 2,
    "delayed_cancelled_max": 1,
    "hash_ring_weights_max": 10,
    "topic_visits_max": 20_000,
    "headers_comparisons_max": 1_000,
}

RUN = 16_384
"""Entries that make a run of a delayed exchange's index."""


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    """A broker with little room, for all tests here that do not end it."""
    appliance = Appliance("broker", tmp_path_factory.mktemp("bounded"), **BOUNDS)
    yield appliance.start()
    appliance.close()


@pytest.fixture
def little(bounded: Appliance) -> Iterator[Client]:
    with connect(bounded) as client:
        yield client


def refused(client: Client, channel: int, setting: str) -> None:
    """What the channel asked for closes it with 406 and the setting's name."""
    closed = client.expect("channel.close", channel, reply_code=406)
    assert setting in closed.reply_text
    client.send_method(channel, "channel.close-ok")


@pytest.mark.parametrize(
    ("asked", "setting"),
    [
        ("a,b,c", ""),
        ("a,b,c,d", "stream_filter_values_max"),
        (["a", "b", {"kind": "c", "size": 1}], "stream_filter_values_max"),
        ("x" * 256, ""),
        ("x" * 257, "stream_filter_bytes_max"),
        ({"kind": "x" * 253}, "stream_filter_bytes_max"),
    ],
    ids=["most", "too many", "too many with headers", "longest", "too long", "too long a header"],
)
def test_a_filter_asks_for_a_bounded_number_of_values(
    little: Client, asked: Any, setting: str
) -> None:
    stream = streams.declare(little)
    if not setting:
        Reader(little, stream, x_stream_filter=asked).close()
        return
    little.call(8, "channel.open")
    little.call(8, "basic.qos", prefetch_count=1)
    little.send_method(8, "basic.consume", queue=stream, arguments={"x-stream-filter": asked})
    refused(little, 8, setting)


def test_the_weights_of_a_ring_are_bounded_together(little: Client, name: str) -> None:
    little.call(1, "exchange.declare", exchange=name, type="x-consistent-hash")
    for number, weight in enumerate((4, 6)):
        queue = f"{name}-{number}"
        little.call(1, "queue.declare", queue=queue)
        little.call(1, "queue.bind", queue=queue, exchange=name, routing_key=str(weight))
    little.call(8, "channel.open")
    little.send_method(8, "queue.bind", queue=f"{name}-0", exchange=name, routing_key="1")
    refused(little, 8, "hash_ring_weights_max")


def test_what_wildcards_may_cost_is_bounded_where_they_are_bound(little: Client, name: str) -> None:
    little.call(1, "exchange.declare", exchange=name, type="topic")
    little.call(1, "queue.declare", queue=name)
    little.call(1, "queue.bind", queue=name, exchange=name, routing_key="#.error")
    little.call(8, "channel.open")
    dear = ["#", "a", "*"] * 20
    for words in (dear, ["*", *dear]):
        key = ".".join(words)
        little.send_method(8, "queue.bind", queue=name, exchange=name, routing_key=key)
    little.expect("queue.bind-ok", 8)
    refused(little, 8, "topic_visits_max")
    # Publishing never meets the limit, whatever the key.
    little.publish(1, name, ".".join(["a"] * 120 + ["error"]), b"routed")
    little.call(1, "queue.bind", queue=name, exchange=name, routing_key="plain")
    assert little.call(1, "queue.declare", queue=name, passive=True).message_count == 1


@pytest.mark.parametrize("kind", ["headers", "x-delayed-message"])
def test_comparisons_of_headers_are_bounded_where_they_are_bound(
    little: Client, name: str, kind: str
) -> None:
    inner = {"x-delayed-type": "headers"} if kind == "x-delayed-message" else {}
    little.call(1, "exchange.declare", exchange=name, type=kind, arguments=inner)
    little.call(1, "queue.declare", queue=name)
    little.call(1, "queue.bind", queue=name, exchange=name, arguments={"a": 1, "b": 1})
    little.call(8, "channel.open")
    dear = dict.fromkeys(map(str, range(999)), 1)
    little.send_method(8, "queue.bind", queue=name, exchange=name, arguments=dear)
    refused(little, 8, "headers_comparisons_max")
    little.publish(1, name, "", b"routed", headers={"a": 1, "b": 1})
    assert little.call(1, "queue.declare", queue=name, passive=True).message_count == 1


def test_no_more_expire_while_so_many_wait_for_a_full_queue(
    bounded: Appliance, little: Client
) -> None:
    full = limited(little, x_max_length=1, x_overflow="reject-publish")
    fill(little, full, b"fills it")
    source = limited(
        little, x_message_ttl=1, x_dead_letter_exchange="", x_dead_letter_routing_key=full
    )
    fill(little, source, *(b"%d" % number for number in range(6)))

    def counts() -> tuple[int, int]:
        found = row(bounded, source)
        return found["messages_ready"], found["messages_unacknowledged"]

    until(lambda: counts() == (4, 2))
    little.call(1, "queue.purge", queue=full)
    until(lambda: counts() == (3, 2))


def test_cancelled_messages_that_are_not_due_are_bounded(
    bounded: Appliance, little: Client, name: str
) -> None:
    little.call(
        1,
        "exchange.declare",
        exchange=name,
        type="x-delayed-message",
        durable=True,
        arguments={"x-delayed-type": "fanout"},
    )
    # What the index has in memory can be taken out at once: those count that are in its files.
    later = raw.publish(1, name, "k", b"x", headers={"x-delay": 3_600_000}, delivery_mode=2)
    little.send(later * RUN)
    little.fence(1)
    until(lambda: any(bounded.data_dir.glob("vhosts/*/schedule/*/*")))
    items = ask(bounded, "exchange.delayed", vhost="/", name=name)["items"]
    cancelled = 0
    # A file is there before the index knows that it is whole: the first ones may still not count.
    with pytest.raises(Exception, match="delayed_cancelled_max"):
        for item in items:
            ask(bounded, "exchange.delayed.cancel", vhost="/", name=name, id=item["id"])
            cancelled += 1
    assert cancelled > 0


# The places of a stream's consumers.


def done_with_one(client: Client, stream: str, tag: str) -> None:
    """A consumer with this tag takes the first message, acks it and goes."""
    reader = tracked(client, stream, tag)
    reader.take(1)
    reader.close()


def tracked(client: Client, stream: str, tag: str) -> Reader:
    arguments: dict[str, Any] = {"x_stream_automatic_offset_tracking": True}
    return Reader(client, stream, tag=tag, prefetch=1, x_stream_offset="first", **arguments)


def places(broker: Appliance, stream: str) -> tuple[list[str], int]:
    """Tags whose places are kept, and how many were forgotten."""
    figures = row(broker, stream)["stream"]
    tags = [each["consumer_tag"] for each in figures["consumer_offsets"]]
    return tags, figures["consumer_offsets_forgotten"]


def test_the_oldest_place_makes_room_and_is_told_of(bounded: Appliance, little: Client) -> None:
    stream = streams.declare(little)
    streams.fill(little, stream, b"0", b"1")
    for tag in ("first", "second\nline", "third"):
        done_with_one(little, stream, tag)
    assert places(bounded, stream) == (["second\nline", "third"], 1)
    told = [line for line in bounded.log().splitlines() if stream in line]
    assert len(told) == 1
    assert "'first'" in told[0]
    assert "stream_offsets_max" in told[0]
    done_with_one(little, stream, "fourth")
    assert places(bounded, stream) == (["third", "fourth"], 2)
    assert r"'second\nline'" in bounded.log()


def test_the_place_of_a_consumer_that_is_there_is_not_forgotten(
    bounded: Appliance, little: Client
) -> None:
    stream = streams.declare(little)
    streams.fill(little, stream, b"0")
    staying = tracked(little, stream, "staying")
    staying.take(1)
    for tag in ("second", "third"):
        done_with_one(little, stream, tag)
    tags, forgotten = places(bounded, stream)
    assert sorted(tags) == ["staying", "third"]
    assert forgotten == 1
    staying.close()


def test_a_forgotten_place_stays_forgotten_after_a_crash(make_broker: Any) -> None:
    """The file still names it, and says that it has gone: the next start forgets nobody else, and
    tells of nothing new."""
    broker = make_broker(stream_offsets_max=2)
    client = connect(broker)
    stream = streams.declare(client)
    streams.fill(client, stream, b"0")
    other = connect(broker)
    staying = tracked(other, stream, "staying")
    staying.take(1)
    for tag in ("second", "third"):
        done_with_one(client, stream, tag)
    streams.fill(client, stream, b"1")
    client.cut()
    other.cut()
    broker.kill()
    broker.start()
    tags, forgotten = places(broker, stream)
    assert (sorted(tags), forgotten) == (["staying", "third"], 0)
    assert "is forgotten" not in broker.log()
    client = connect(broker)

    def first(tag: str) -> Message:
        return tracked(client, stream, tag).take(1, ack=False)[0]

    assert [first(tag).body for tag in ("staying", "second")] == [b"1", b"0"]
    client.cut()


def test_a_channel_has_so_many_consumers_and_no_more(bounded: Appliance) -> None:
    with Client.open((bounded.host, bounded.amqp_port), channels=(1, 2)) as client:
        queue = client.call(1, "queue.declare", exclusive=True).queue
        for tag in ("a", "b", "c"):
            client.call(1, "basic.consume", queue=queue, consumer_tag=tag)
        client.call(1, "basic.cancel", consumer_tag="a")
        client.call(1, "basic.consume", queue=queue, consumer_tag="d")
        client.call(2, "basic.consume", queue=queue)
        client.send_method(1, "basic.consume", queue=queue, consumer_tag="e")
        text = r"^NOT_ALLOWED - reached maximum \(3\) of consumers per channel$"
        client.expect_connection_close(530, 60, 20, text)

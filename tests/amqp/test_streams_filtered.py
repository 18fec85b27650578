"""Filters of stream consumers: which messages they get, and which segments are not even read."""

from typing import Any

import pytest

from tests.amqp import raw, streams
from tests.amqp.raw import Client
from tests.amqp.streams import Reader

END = b"the end"

MESSAGES: list[dict[str, Any]] = [
    {"x-stream-filter-value": "eu"},
    {"x-stream-filter-value": "us"},
    {"x-stream-filter-value": "eu,us"},
    {},
    {"x-stream-filter-value": "EU", "kind": "order"},
    {"x-stream-filter-value": "eu", "kind": "order", "size": 3},
    {"kind": "order", "paid": True, "size": 2**40},
    {"x-stream-filter-value": 7},
    {"x-stream-filter-value": ""},
    {"x-stream-filter-value": "a b, c"},
]

FILTERS: dict[str, tuple[dict[str, Any], list[int]]] = {
    "one value": ({"x_stream_filter": "eu"}, [0, 2, 5]),
    "another value": ({"x_stream_filter": "us"}, [1, 2]),
    "no such value": ({"x_stream_filter": "asia"}, []),
    "any of a list with commas": ({"x_stream_filter": "us, EU"}, [1, 2, 4]),
    "any of an array": ({"x_stream_filter": ["us", "EU"]}, [1, 2, 4]),
    "all of an array": (
        {"x_stream_filter": ["us", "eu"], "x_filter_match_type": "all"},
        [2],
    ),
    "the empty value": ({"x_stream_filter": ""}, [8]),
    "a part of a value with a blank": ({"x_stream_filter": {"x-stream-filter": "a b"}}, [9]),
    "with the unfiltered": (
        {"x_stream_filter": "us", "x_stream_match_unfiltered": True},
        [1, 2, 3, 6, 7],
    ),
    "without the unfiltered": (
        {"x_stream_filter": "us", "x_stream_match_unfiltered": False},
        [1, 2],
    ),
    "a header": ({"x_stream_filter": {"kind": "order"}}, [4, 5, 6]),
    "two headers": ({"x_stream_filter": {"kind": "order", "size": 3}}, [5]),
    "any of two headers": (
        {"x_stream_filter": {"paid": True, "size": "3"}, "x_filter_match_type": "ANY"},
        [5, 6],
    ),
    "a long number": ({"x_stream_filter": {"size": 2**40}}, [6]),
    "a header and a value": ({"x_stream_filter": ["eu", {"kind": "order"}]}, [5]),
    "a header or a value": (
        {"x_stream_filter": ["us", {"kind": "order"}], "x_filter_match_type": "any"},
        [1, 2, 4, 5, 6],
    ),
    "no condition": ({"x_stream_filter": []}, list(range(len(MESSAGES)))),
}


@pytest.mark.parametrize("case", FILTERS)
def test_it_gives_what_is_wanted(client: Client, case: str) -> None:
    arguments, expected = FILTERS[case]
    stream = streams.declare(client)
    for headers in MESSAGES:
        streams.fill(client, stream, b"x", headers=headers)
    # A message that every filter wants shows that nothing else was on its way.
    wanted = {"x-stream-filter-value": "eu,us,EU,asia,,a b", "kind": "order", "size": 3}
    for headers in (wanted, {**wanted, "size": 2**40, "paid": True}):
        streams.fill(client, stream, END, headers=headers)
    reader = Reader(client, stream, x_stream_offset="first", **arguments)
    got = []
    while (message := reader.take(1)[0]).body != END:
        got.append(streams.offset(message))
    assert got == expected


def test_it_goes_through_a_long_stream_without_holding_others_up(
    client: Client, other: Client
) -> None:
    """Whoever wants one of many messages reads all, in steps between which others are served."""
    stream = streams.declare(client)
    count = 20_000
    client.call(2, "channel.open")
    client.call(2, "confirm.select")
    one = raw.publish(2, "", stream, b"x", headers={"kind": "common"})
    client.send(one * count + raw.publish(2, "", stream, END, headers={"kind": "rare"}))
    client.expect_confirms(2, count + 1)
    reader = Reader(other, stream, x_stream_offset="first", x_stream_filter={"kind": "rare"})
    client.fence(1)
    assert [streams.offset(message) for message in reader.take(1)] == [count]


def test_it_gives_filtered_messages_back_too(client: Client) -> None:
    stream = streams.declare(client)
    for value in ("a", "b", "a", "b"):
        streams.fill(client, stream, b"x", headers={"x-stream-filter-value": value})
    reader = Reader(client, stream, x_stream_offset="first", x_stream_filter="b")
    got = reader.take(2, ack=False)
    client.send_method(
        reader.channel, "basic.nack", delivery_tag=got[1].tag, multiple=True, requeue=True
    )
    assert [streams.offset(message) for message in reader.take(2)] == [1, 3]


def test_it_keeps_the_place_behind_what_was_not_wanted(client: Client) -> None:
    stream = streams.declare(client)
    for value in ("a", "b", "a", "a"):
        streams.fill(client, stream, b"x", headers={"x-stream-filter-value": value})
    arguments: dict[str, Any] = {"x_stream_automatic_offset_tracking": True}
    reader = Reader(
        client, stream, tag="t", x_stream_offset="first", x_stream_filter="b", **arguments
    )
    (got,) = reader.take(1, ack=False)
    reader.is_at_end()
    reader.ack(got)
    reader.close()
    streams.fill(client, stream, b"new", headers={"x-stream-filter-value": "a"})
    again = Reader(client, stream, tag="t")
    assert [streams.offset(message) for message in again.take(1)] == [4]

"""Every argument with values that it does not take, and those that take any."""

import re
from typing import Any

import pytest

from broker.routing.types import TYPES
from tests.amqp import bad_values, streams
from tests.amqp.raw import Client
from tests.amqp.test_exchanges import Topology


@pytest.mark.parametrize(("argument", "value", "text"), bad_values.cases("queue"))
def test_it_refuses_a_queue_argument(
    client: Client, name: str, argument: str, value: Any, text: str
) -> None:
    kind = bad_values.QUEUE_TYPE.get(argument)
    given = streams.table({}) if kind == "stream" else {}
    client.send_method(
        1, "queue.declare", queue=name, durable=True, arguments={**given, argument: value}
    )
    told = client.expect_channel_close(1, 406, 50, 10, re.escape(text)).reply_text
    assert argument in told
    client.call(1, "channel.open")
    client.send_method(1, "queue.declare", queue=name, passive=True)
    client.expect_channel_close(1, 404, 50, 10)


@pytest.mark.parametrize(("argument", "value", "text"), bad_values.cases("exchange"))
def test_it_refuses_an_exchange_argument(
    client: Client, name: str, argument: str, value: Any, text: str
) -> None:
    type_ = bad_values.EXCHANGE_TYPE.get(argument, "direct")
    client.send_method(
        1, "exchange.declare", exchange=name, type=type_, arguments={argument: value}
    )
    client.expect_channel_close(1, 406, 40, 10, re.escape(text))
    client.call(1, "channel.open")
    client.send_method(1, "exchange.declare", exchange=name, passive=True)
    client.expect_channel_close(1, 404, 40, 10)


@pytest.mark.parametrize(("argument", "value", "text"), bad_values.cases("consumer"))
def test_it_refuses_a_consumer_argument(
    client: Client, argument: str, value: Any, text: str
) -> None:
    if argument == "x-priority":
        queue = client.call(1, "queue.declare", exclusive=True).queue
    else:
        queue = streams.declare(client)
    client.call(1, "basic.qos", prefetch_count=10)
    client.send_method(1, "basic.consume", queue=queue, arguments={argument: value})
    client.expect_channel_close(1, 406, 60, 20, re.escape(text))


@pytest.mark.parametrize(("argument", "value", "text"), bad_values.cases("binding"))
def test_it_refuses_a_binding_argument(
    client: Client, argument: str, value: Any, text: str
) -> None:
    topology = Topology(client, "headers")
    queue = client.call(1, "queue.declare", exclusive=True).queue
    client.send_method(
        1, "queue.bind", queue=queue, exchange=topology.exchange, arguments={argument: value}
    )
    client.expect_channel_close(1, 406, 50, 20, text)


@pytest.mark.parametrize("size", [16, 255])
def test_it_takes_the_size_of_a_streams_filter(client: Client, size: int) -> None:
    stream = streams.declare(client, x_stream_filter_size_bytes=size)
    streams.fill(client, stream, b"eu", headers={"x-stream-filter-value": "eu"})
    streams.fill(client, stream, b"us", headers={"x-stream-filter-value": "us"})
    reader = streams.Reader(client, stream, x_stream_offset="first", x_stream_filter="us")
    assert reader.take(1)[0].body == b"us"


@pytest.mark.parametrize("argument", bad_values.TAKES_ANYTHING["queue"])
def test_it_takes_any_value_of_a_queue_argument_without_meaning(
    client: Client, argument: str
) -> None:
    for value in bad_values.ANYTHING:
        queue = client.call(1, "queue.declare", exclusive=True, arguments={argument: value}).queue
        client.publish(1, "", queue, b"as ever")
        got = client.get(1, queue, no_ack=True)
        assert got is not None
        assert got.body == b"as ever"
        # Another value is no difference either.
        client.call(1, "queue.declare", queue=queue, exclusive=True, arguments={argument: 1})


@pytest.mark.parametrize("argument", bad_values.TAKES_ANYTHING["consumer"])
def test_it_takes_any_value_of_a_consumer_argument_without_meaning(
    client: Client, argument: str
) -> None:
    queue = client.call(1, "queue.declare", exclusive=True).queue
    for value in bad_values.ANYTHING:
        tag = client.call(1, "basic.consume", queue=queue, arguments={argument: value}).consumer_tag
        client.publish(1, "", queue, b"as ever")
        client.send_method(1, "basic.ack", delivery_tag=client.expect_message(channel=1).tag)
        client.call(1, "basic.cancel", consumer_tag=tag)


@pytest.mark.parametrize("type_", [name for name in TYPES if name != "x-delayed-message"])
def test_it_refuses_an_exchange_of_another_type_under_its_name(client: Client, type_: str) -> None:
    topology = Topology(client, type_)
    other = "fanout" if type_ == "direct" else "direct"
    client.send_method(1, "exchange.declare", exchange=topology.exchange, type=other)
    client.expect_channel_close(
        1, 406, 40, 10, f"received '{other}' but current is '{re.escape(type_)}'"
    )


@pytest.mark.parametrize("header", ["CC", "BCC"])
@pytest.mark.parametrize("value", ["b", 5, True, {"b": 1}], ids=repr)
def test_it_refuses_copies_to_what_is_no_array(client: Client, header: str, value: Any) -> None:
    topology = Topology(client, "direct")
    queue = topology.queue("a", "b")
    client.publish(1, topology.exchange, "a", b"x", headers={header: value})
    client.expect_channel_close(1, 406, 60, 40, header)
    client.call(1, "channel.open")
    assert client.get(1, queue) is None


@pytest.mark.parametrize(
    "value",
    ["often", 5, None, {}, [], ["once"], [{}], [{"count": "many", "queue": 5}], [{"count": -1}]],
    ids=repr,
)
def test_it_begins_a_new_history_where_the_one_it_was_sent_is_none(
    client: Client, value: Any
) -> None:
    dead = client.call(1, "queue.declare", exclusive=True).queue
    queue = client.call(
        1,
        "queue.declare",
        exclusive=True,
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead},
    ).queue
    client.publish(1, "", queue, b"x", headers={"x-death": value})
    got = client.get(1, queue)
    assert got is not None
    client.send_method(1, "basic.reject", delivery_tag=got.tag)
    client.fence(1)
    letter = client.get(1, dead, no_ack=True)
    assert letter is not None
    death = letter.properties["headers"]["x-death"][0]
    assert (death["queue"], death["reason"], death["count"]) == (queue, "rejected", 1)

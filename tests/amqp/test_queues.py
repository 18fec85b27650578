"""Queues: names, lives, counts."""

import re

import pytest

from tests.amqp import raw
from tests.amqp.raw import Client

Address = tuple[str, int]


def is_there(client: Client, queue: str) -> bool:
    """Whether a passive declare finds the queue."""
    client.send_method(1, "queue.declare", queue=queue, passive=True)
    got = client.read_method()
    if got.name == "queue.declare-ok":
        return True
    assert (got.name, got.reply_code) == ("channel.close", 404), got
    client.send_method(1, "channel.close-ok")
    client.call(1, "channel.open")
    return False


def test_it_names_a_queue_that_has_no_name(client: Client) -> None:
    first = client.call(1, "queue.declare", exclusive=True).queue
    second = client.call(1, "queue.declare", exclusive=True).queue
    assert re.fullmatch(r"amq\.gen-[A-Za-z0-9_-]{22,32}", first)
    assert first != second


def test_it_takes_the_last_declared_queue_where_none_is_named(client: Client) -> None:
    queue = client.call(1, "queue.declare", exclusive=True).queue
    client.call(1, "queue.bind", exchange="amq.direct")
    client.publish(1, "amq.direct", queue, b"bound by the queue's own name")
    got = client.get(1, "")
    assert got is not None
    assert got.method.routing_key == queue
    tag = client.call(1, "basic.consume").consumer_tag
    client.call(1, "basic.cancel", consumer_tag=tag)
    client.call(1, "queue.delete")
    assert not is_there(client, queue)


def test_it_counts_messages_and_consumers_in_declare_ok(client: Client, name: str) -> None:
    client.call(1, "confirm.select")
    client.call(1, "queue.declare", queue=name)
    client.publish(1, "", name, b"1")
    client.publish(1, "", name, b"2")
    client.expect_confirms(1, 2)
    got = client.call(1, "queue.declare", queue=name)
    assert (got.queue, got.message_count, got.consumer_count) == (name, 2, 0)
    client.send_method(1, "basic.consume", queue=name)
    client.expect("basic.consume-ok", 1)
    client.expect_messages(2, 1)
    got = client.call(1, "queue.declare", queue=name, passive=True)
    assert (got.message_count, got.consumer_count) == (0, 1)


def test_it_answers_nothing_when_told_not_to_wait(client: Client, name: str) -> None:
    client.send_method(1, "queue.declare", queue=name, nowait=True)
    client.send_method(
        1, "queue.bind", queue=name, exchange="amq.direct", routing_key=name, nowait=True
    )
    client.publish(1, "amq.direct", name, b"x")
    client.send_method(1, "basic.consume", queue=name, consumer_tag="c", no_ack=True, nowait=True)
    assert client.expect_message(channel=1).method.consumer_tag == "c"
    client.send_method(1, "basic.cancel", consumer_tag="c", nowait=True)
    client.send_method(1, "queue.purge", queue=name, nowait=True)
    client.send_method(1, "queue.delete", queue=name, nowait=True)
    assert not is_there(client, name)


def test_it_purges_ready_messages_and_tells_how_many(client: Client, name: str) -> None:
    client.call(1, "confirm.select")
    client.call(1, "queue.declare", queue=name)
    for body in (b"1", b"2", b"3"):
        client.publish(1, "", name, body)
    client.expect_confirms(1, 3)
    held = client.get(1, name)
    assert held is not None
    assert client.call(1, "queue.purge", queue=name).message_count == 2
    assert client.get(1, name) is None
    client.send_method(1, "basic.reject", delivery_tag=held.tag, requeue=True)
    again = client.get(1, name, no_ack=True)
    assert again is not None
    assert again.body == b"1"


def test_it_deletes_a_queue_and_tells_how_many_messages_it_had(client: Client, name: str) -> None:
    client.call(1, "confirm.select")
    client.call(1, "queue.declare", queue=name)
    client.publish(1, "", name, b"1")
    client.publish(1, "", name, b"2")
    client.expect_confirms(1, 2)
    assert client.call(1, "queue.delete", queue=name).message_count == 2
    assert not is_there(client, name)


def test_a_queue_declared_again_knows_nothing_of_its_namesake(client: Client, name: str) -> None:
    client.call(1, "confirm.select")
    for durable in (True, False, True):
        client.call(1, "queue.declare", queue=name, durable=durable)
        client.call(1, "queue.bind", queue=name, exchange="amq.fanout")
        assert client.call(1, "queue.declare", queue=name, passive=True).message_count == 0
        client.publish(1, "", name, b"old", delivery_mode=2)
        client.expect("basic.ack", 1)
        client.call(1, "queue.delete", queue=name)


def test_an_exclusive_queue_dies_with_its_connection(
    client: Client, amqp_address: Address, name: str
) -> None:
    owner = Client.open(amqp_address)
    owner.call(1, "queue.declare", queue=name, exclusive=True)
    client.send_method(1, "queue.declare", queue=name, passive=True)
    client.expect_channel_close(1, 405, 50, 10)
    client.call(1, "channel.open")
    owner.close()
    assert not is_there(client, name)


def test_all_exclusive_queues_are_gone_when_the_connection_is_closed(
    client: Client, amqp_address: Address, name: str
) -> None:
    names = [f"{name}-{number}" for number in range(600)]
    with Client.open(amqp_address) as owner:
        owner.send(
            b"".join(
                raw.method(1, "queue.declare", queue=each, exclusive=True, nowait=True)
                for each in names
            )
        )
        assert owner.call(1, "queue.declare", queue=names[-1], exclusive=True).queue == names[-1]
        owner.call(0, "connection.close", reply_code=200)
        client.send(
            b"".join(raw.publish(1, "", each, b"to nobody", mandatory=True) for each in names)
        )
        for each in names:
            assert client.expect_message("basic.return", 1).method.routing_key == each


def test_a_queue_with_many_bindings_is_deleted_before_what_was_asked_behind_it(
    client: Client, name: str
) -> None:
    """Who gets the answer to the deletion finds none of the bindings; replies keep their order."""
    client.call(1, "queue.declare", queue=name)
    client.send(
        b"".join(
            raw.method(
                1, "queue.bind", queue=name, exchange="amq.topic", routing_key=f"{name}.{key}.#",
                nowait=True,
            )
            for key in range(3000)
        )
    )  # fmt: skip
    client.publish(1, "amq.topic", f"{name}.2999.any", b"bound")
    client.send(
        raw.method(1, "queue.delete", queue=name)
        + raw.method(1, "queue.declare", queue=name)
        + raw.method(1, "queue.bind", queue=name, exchange="amq.topic", routing_key=name)
    )
    assert client.expect("queue.delete-ok", 1).message_count == 1
    client.expect("queue.declare-ok", 1)
    client.expect("queue.bind-ok", 1)
    client.publish(1, "amq.topic", f"{name}.2999.any", b"not bound")
    client.publish(1, "amq.topic", name, b"bound again")
    got = client.get(1, name)
    assert got is not None
    assert got.body == b"bound again"


def test_an_exclusive_queue_outlives_the_channel_that_declared_it(
    client: Client, name: str
) -> None:
    client.call(2, "channel.open")
    client.call(2, "queue.declare", queue=name, exclusive=True)
    client.call(2, "channel.close")
    assert is_there(client, name)


def leave_names_behind(client: Client, names: list[str]) -> None:
    """Declares exclusive queues of which the first goes by itself, before the connection does."""
    client.call(1, "queue.declare", queue=names[0], exclusive=True, auto_delete=True)
    client.call(1, "queue.declare", queue=names[1], exclusive=True)
    client.call(1, "basic.consume", queue=names[0], consumer_tag="c")
    client.call(1, "basic.cancel", consumer_tag="c")


def test_a_connection_that_ends_leaves_a_queue_alone_that_took_the_name_of_its_own(
    client: Client, amqp_address: Address, name: str
) -> None:
    leaving = Client.open(amqp_address)
    leave_names_behind(leaving, [name, f"{name}-2"])
    client.call(1, "queue.declare", queue=name, durable=True)
    client.call(1, "confirm.select")
    client.publish(1, "", name, b"mine", delivery_mode=2)
    client.expect("basic.ack", 1)
    leaving.close()
    got = client.get(1, name)
    assert got is not None
    assert got.body == b"mine"
    client.call(1, "queue.delete", queue=name)


def test_a_connection_ends_when_another_has_an_exclusive_queue_of_a_name_it_had(
    client: Client, amqp_address: Address, name: str
) -> None:
    leaving = Client.open(amqp_address)
    names = [name, *(f"{name}-{number}" for number in range(2, 6))]
    leave_names_behind(leaving, names)
    for each in names[2:]:
        leaving.call(1, "queue.declare", queue=each, exclusive=True)
    client.call(1, "queue.declare", queue=name, exclusive=True)
    leaving.close()
    assert [is_there(client, each) for each in names] == [True, False, False, False, False]


def test_an_auto_delete_queue_dies_when_its_last_consumer_leaves(
    client: Client, other: Client, name: str
) -> None:
    client.call(1, "queue.declare", queue=name, auto_delete=True)
    client.call(1, "basic.consume", queue=name, consumer_tag="a")
    other.call(1, "basic.consume", queue=name, consumer_tag="b")
    client.call(1, "basic.cancel", consumer_tag="a")
    assert is_there(client, name)
    other.close()
    assert not is_there(client, name)


def test_an_auto_delete_queue_without_consumers_stays(client: Client, name: str) -> None:
    client.call(1, "queue.declare", queue=name, auto_delete=True)
    client.publish(1, "", name, b"x")
    assert client.get(1, name, no_ack=True) is not None
    assert is_there(client, name)


def test_it_deletes_an_unused_empty_queue_on_those_conditions(client: Client, name: str) -> None:
    client.call(1, "queue.declare", queue=name)
    client.call(1, "queue.delete", queue=name, if_unused=True, if_empty=True)
    assert not is_there(client, name)


@pytest.mark.parametrize(
    "queue", ["spaces and / slashes", "ünï-çødé-☃", "<script>alert(1)</script>", "a" * 255, "#.*"]
)
def test_it_takes_any_name(client: Client, queue: str) -> None:
    assert client.call(1, "queue.declare", queue=queue, exclusive=True).queue == queue
    client.publish(1, "", queue, b"x")
    got = client.get(1, queue, no_ack=True)
    assert got is not None
    assert got.method.routing_key == queue


def test_it_takes_line_breaks_out_of_names(client: Client, name: str) -> None:
    given = f"{name}\r\nx\n"
    assert client.call(1, "queue.declare", queue=given, exclusive=True).queue == f"{name}x"
    assert client.call(1, "queue.declare", queue=given, passive=True).queue == f"{name}x"
    client.call(1, "queue.delete", queue=given)


def test_it_keeps_arguments_of_every_type(client: Client, name: str) -> None:
    table = {
        "x-a": 1, "x-b": True, "x-c": "text", "x-d": 1.5, "x-e": [1, "two", {"three": 3}],
        "x-f": {"deep": {"deeper": None}}, "x-g": 2**40, "x-h": b"\x00\xff",
    }  # fmt: skip
    client.call(1, "queue.declare", queue=name, arguments=table)
    client.call(1, "queue.declare", queue=name, arguments=table)


def test_it_pipelines_declares_in_order(client: Client, name: str) -> None:
    names = [f"{name}-{number}" for number in range(200)]
    client.send(
        b"".join(
            raw.method(1, "queue.declare", queue=queue, exclusive=True, durable=True)
            for queue in names
        )
    )
    assert [client.expect("queue.declare-ok", 1).queue for _ in names] == names


def test_the_answer_to_a_delete_comes_before_the_cancel_of_the_channels_own_consumers(
    client: Client, name: str
) -> None:
    for durable in (False, True):
        client.call(1, "queue.declare", queue=name, durable=durable)
        client.call(1, "basic.consume", queue=name, consumer_tag="a")
        client.call(1, "basic.consume", queue=name, consumer_tag="b")
        client.send_method(1, "queue.delete", queue=name)
        client.expect("queue.delete-ok", 1)
        tags = {client.expect("basic.cancel", 1).consumer_tag for _ in range(2)}
        assert tags == {"a", "b"}


def test_a_delete_that_is_refused_leaves_no_gap_in_the_replies(client: Client, name: str) -> None:
    client.call(1, "queue.declare", queue=name)
    client.call(1, "basic.consume", queue=name)
    client.send_method(1, "queue.delete", queue=name, if_unused=True)
    client.expect_channel_close(1, 406, 50, 40, "in use")
    client.call(1, "channel.open")
    client.send_method(1, "queue.delete", queue=name, if_unused=True, nowait=True)
    client.fence(1)
    assert not is_there(client, name)

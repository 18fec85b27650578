"""Acks in a transaction settle, at its commit, what the client had seen when it gave them."""

from tests.amqp.raw import Client


def deliver(client: Client, queue: str, *bodies: bytes) -> list[int]:
    """Publishes and takes what is delivered: the tags."""
    for body in bodies:
        client.publish(2, "", queue, body)
    return [message.tag for message in client.expect_messages(len(bodies), 1)]


def begin(client: Client, queue: str) -> None:
    client.call(2, "channel.open")
    client.call(1, "queue.declare", queue=queue)
    client.call(1, "tx.select")
    client.call(1, "basic.consume", queue=queue)


def left(client: Client, other: Client, queue: str) -> list[bytes]:
    """What comes back when the consumer's channel ends."""
    client.call(1, "channel.close")
    count = other.call(1, "queue.declare", queue=queue, passive=True).message_count
    got = [other.get(1, queue, no_ack=True) for _ in range(count)]
    other.call(1, "queue.delete", queue=queue)
    return [message.body for message in got if message]


def test_an_ack_of_all_leaves_what_is_delivered_after_it(
    client: Client, other: Client, name: str
) -> None:
    begin(client, name)
    deliver(client, name, b"1", b"2")
    client.send_method(1, "basic.ack", delivery_tag=0, multiple=True)
    client.fence(1)
    (third,) = deliver(client, name, b"3")
    client.call(1, "tx.commit")
    assert third == 3
    assert left(client, other, name) == [b"3"]


def test_what_comes_after_an_ack_of_all_can_be_acked_too(
    client: Client, other: Client, name: str
) -> None:
    begin(client, name)
    deliver(client, name, b"1", b"2")
    client.send_method(1, "basic.ack", delivery_tag=0, multiple=True)
    deliver(client, name, b"3", b"4")
    client.send_method(1, "basic.ack", delivery_tag=3)
    client.call(1, "tx.commit")
    assert left(client, other, name) == [b"4"]


def test_a_delivery_is_settled_once(client: Client, other: Client, name: str) -> None:
    begin(client, name)
    deliver(client, name, b"1", b"2", b"3")
    client.send_method(1, "basic.ack", delivery_tag=2, multiple=True)
    client.send_method(1, "basic.nack", delivery_tag=1, requeue=True)
    client.expect_channel_close(1, 406, 60, 120, "unknown delivery tag 1")
    client.call(1, "channel.open")
    assert left(client, other, name) == [b"1", b"2", b"3"]


def test_recovering_leaves_what_is_acked(client: Client, other: Client, name: str) -> None:
    begin(client, name)
    deliver(client, name, b"1", b"2")
    client.send_method(1, "basic.ack", delivery_tag=1)
    client.send_method(1, "basic.recover", requeue=True)
    client.expect("basic.recover-ok", 1)
    again = client.expect_message("basic.deliver", 1)
    assert (again.body, again.redelivered) == (b"2", True)
    client.call(1, "tx.commit")
    assert left(client, other, name) == [b"2"]


def test_a_commit_to_an_exchange_that_is_gone_settles_nothing(
    client: Client, other: Client, name: str
) -> None:
    begin(client, name)
    other.call(1, "exchange.declare", exchange=name, type="fanout")
    other.call(1, "queue.bind", queue=name, exchange=name)
    (tag,) = deliver(client, name, b"job")
    client.publish(1, "", name, b"result")
    client.publish(1, name, "", b"result")
    client.send_method(1, "basic.ack", delivery_tag=tag)
    client.fence(1)
    other.call(1, "exchange.delete", exchange=name)
    client.send_method(1, "tx.commit")
    client.expect_channel_close(1, 404, 90, 20, f"no exchange '{name}'")
    client.call(1, "channel.open")
    assert left(client, other, name) == [b"job"]


def test_a_commit_whose_reply_can_go_nowhere_publishes_and_settles_nothing(
    client: Client, other: Client, name: str
) -> None:
    begin(client, name)
    (tag,) = deliver(client, name, b"job")
    client.call(
        1, "basic.consume", queue="amq.rabbitmq.reply-to", consumer_tag="replies", no_ack=True
    )
    client.publish(1, "", name, b"result")
    client.publish(1, "", name, b"question", reply_to="amq.rabbitmq.reply-to")
    client.send_method(1, "basic.ack", delivery_tag=tag)
    client.call(1, "basic.cancel", consumer_tag="replies")
    client.send_method(1, "tx.commit")
    client.expect_channel_close(1, 406, 90, 20, "fast reply consumer does not exist")
    client.call(1, "channel.open")
    assert left(client, other, name) == [b"job"]


def test_a_commit_that_a_queue_refuses_settles_nothing(
    client: Client, other: Client, name: str
) -> None:
    begin(client, name)
    full = other.call(
        1, "queue.declare", arguments={"x-max-length": 1, "x-overflow": "reject-publish"}
    ).queue
    (tag,) = deliver(client, name, b"job")
    for body in (b"1", b"2"):
        client.publish(1, "", full, body)
    client.send_method(1, "basic.ack", delivery_tag=tag)
    client.send_method(1, "tx.commit")
    client.expect_channel_close(1, 406, 90, 20, "partial tx completion")
    client.call(1, "channel.open")
    assert left(client, other, name) == [b"job"]
    got = other.get(1, full, no_ack=True)
    assert got is not None
    assert got.body == b"1"
    other.call(1, "queue.delete", queue=full)

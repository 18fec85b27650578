"""Queues that serve one consumer at a time."""

from tests.amqp.limited_queues import limited
from tests.amqp.raw import Client


def test_one_consumer_at_a_time_is_active(client: Client, other: Client) -> None:
    queue = limited(client, x_single_active_consumer=True)
    client.call(1, "basic.consume", queue=queue, consumer_tag="first")
    other.call(1, "basic.consume", queue=queue, consumer_tag="second")
    for number in range(5):
        other.publish(1, "", queue, str(number).encode())
    got = client.expect_messages(5, 1)
    assert [message.method.consumer_tag for message in got] == ["first"] * 5
    other.fence(1)
    client.send_method(1, "basic.ack", delivery_tag=2, multiple=True)
    client.call(1, "basic.cancel", consumer_tag="first")
    other.publish(1, "", queue, b"5")
    assert other.expect_message(channel=1).body == b"5"
    client.close()
    again = other.expect_messages(3, 1)
    assert [(message.body, message.redelivered) for message in again] == [
        (b"2", True), (b"3", True), (b"4", True),
    ]  # fmt: skip


def test_the_next_consumer_in_line_becomes_active(
    client: Client, other: Client, amqp_address: tuple[str, int]
) -> None:
    queue = limited(client, x_single_active_consumer=True)
    with Client.open(amqp_address) as third:
        client.call(1, "basic.consume", queue=queue, no_ack=True)
        other.call(1, "basic.consume", queue=queue, no_ack=True)
        third.call(1, "basic.consume", queue=queue, no_ack=True)
        assert client.call(1, "queue.declare", queue=queue, passive=True).consumer_count == 3
        client.close()
        third.publish(1, "", queue, b"1")
        assert other.expect_message(channel=1).body == b"1"
        other.close()
        third.publish(1, "", queue, b"2")
        assert third.expect_message(channel=1).body == b"2"

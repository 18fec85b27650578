"""Direct reply-to between connections: answers go straight to the channel that asked."""

import pytest

from tests.amqp import raw
from tests.amqp.raw import Client

REPLY = "amq.rabbitmq.reply-to"


def ask(client: Client, queue: str, body: bytes = b"question", **values: str) -> None:
    """Publishes with the pseudo-queue as reply-to."""
    client.publish(1, "", queue, body, reply_to=REPLY, **values)


def asked(server: Client, queue: str) -> str:
    """Takes the question and returns the address for the answer."""
    got = server.get(1, queue, no_ack=True)
    assert got is not None
    address: str = got.properties["reply_to"]
    assert address.startswith(f"{REPLY}.")
    return address


@pytest.fixture
def queue(client: Client) -> str:
    """A queue that the server takes questions from."""
    name: str = client.call(1, "queue.declare", queue="", auto_delete=True).queue
    return name


def test_an_answer_comes_to_the_channel_that_asked(
    client: Client, other: Client, queue: str
) -> None:
    tag = client.call(1, "basic.consume", queue=REPLY, no_ack=True).consumer_tag
    ask(client, queue, correlation_id="7", message_id="m")
    client.fence(1)
    address = asked(other, queue)
    other.publish(1, "", address, b"answer", correlation_id="7")
    got = client.expect_message(channel=1)
    assert (got.body, got.properties) == (b"answer", {"correlation_id": "7"})
    assert (got.method.consumer_tag, got.method.exchange) == (tag, "")
    assert (got.method.routing_key, got.redelivered) == (address, False)


def test_many_answers_come_in_order(client: Client, other: Client, queue: str) -> None:
    client.call(1, "basic.consume", queue=REPLY, no_ack=True, consumer_tag="mine")
    ask(client, queue)
    client.fence(1)
    address = asked(other, queue)
    data = [str(number).encode() * 50 for number in range(100)]
    other.send(b"".join(raw.publish(1, "", address, body) for body in data))
    got = client.expect_messages(100, 1)
    assert [message.body for message in got] == data


def test_answers_of_any_size_come(client: Client, other: Client, queue: str) -> None:
    client.call(1, "basic.consume", queue=REPLY, no_ack=True)
    for size in (0, 131_065, 1 << 20):
        ask(client, queue)
        client.fence(1)
        other.publish(1, "", asked(other, queue), bytes(size))
        assert len(client.expect_message(channel=1).body) == size


def test_an_answer_is_confirmed_and_not_returned(
    client: Client, other: Client, queue: str, flavour: str
) -> None:
    if flavour == "rabbitmq":
        pytest.skip("3.10 returns what it also delivers")
    client.call(1, "basic.consume", queue=REPLY, no_ack=True)
    ask(client, queue)
    client.fence(1)
    address = asked(other, queue)
    other.call(1, "confirm.select")
    other.publish(1, "", address, b"x", mandatory=True)
    assert other.expect("basic.ack", 1).delivery_tag == 1
    client.expect_message(channel=1)


@pytest.mark.parametrize("end", ["cancel", "close", "cut"])
def test_an_answer_to_nobody_is_returned(
    client: Client, other: Client, queue: str, end: str
) -> None:
    with Client.open(client.socket.getpeername()) as asker:
        asker.call(1, "basic.consume", queue=REPLY, no_ack=True, consumer_tag="c")
        ask(asker, queue)
        asker.fence(1)
        address = asked(other, queue)
        if end == "cancel":
            asker.call(1, "basic.cancel", consumer_tag="c")
        elif end == "close":
            asker.call(1, "channel.close")
        else:
            asker.close()
    other.publish(1, "", address, b"x", mandatory=True)
    assert other.expect_message("basic.return", 1).method.reply_code == 312


def test_an_address_that_was_made_up_reaches_nobody(client: Client) -> None:
    client.publish(1, "", f"{REPLY}.AAAAAAAAAA", b"x", mandatory=True)
    assert client.expect_message("basic.return", 1).method.reply_code == 312


def test_two_channels_have_answers_of_their_own(client: Client, other: Client, queue: str) -> None:
    client.call(2, "channel.open")
    addresses = []
    for channel in (1, 2):
        client.call(channel, "basic.consume", queue=REPLY, no_ack=True)
        client.publish(channel, "", queue, b"?", reply_to=REPLY)
        client.fence(channel)
        addresses.append(asked(other, queue))
    assert addresses[0] != addresses[1]
    other.publish(1, "", addresses[1], b"two")
    assert client.expect_message(channel=2).body == b"two"
    other.publish(1, "", addresses[0], b"one")
    assert client.expect_message(channel=1).body == b"one"


def test_it_can_be_declared_passively(client: Client) -> None:
    assert client.call(1, "queue.declare", queue=REPLY, passive=True).queue == REPLY


def test_a_cancelled_consumer_of_answers_may_come_again(client: Client) -> None:
    for _ in range(2):
        client.call(1, "basic.consume", queue=REPLY, no_ack=True, consumer_tag="c")
        client.call(1, "basic.cancel", consumer_tag="c")

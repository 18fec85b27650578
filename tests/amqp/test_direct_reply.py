"""Direct reply-to: requests and replies without a queue of one's own."""

from collections.abc import Callable

import pytest

from tests.amqp import raw
from tests.amqp.raw import Client

PSEUDO = "amq.rabbitmq.reply-to"


@pytest.fixture
def requester(client: Client) -> Client:
    """A client that consumes replies on channel 1 and has a request queue `rpc-requests`."""
    client.call(1, "queue.declare", queue="rpc-requests", auto_delete=True)
    client.call(1, "basic.consume", queue=PSEUDO, no_ack=True, consumer_tag="replies")
    return client


def request(client: Client) -> str:
    """Publishes a request; the reply-to that the server sees."""
    client.publish(1, "", "rpc-requests", b"ping", reply_to=PSEUDO)
    got = client.get(1, "rpc-requests", no_ack=True)
    assert got is not None
    name: str = got.properties["reply_to"]
    return name


def test_it_carries_a_reply_to_the_requester(requester: Client) -> None:
    name = request(requester)
    assert name.startswith(PSEUDO + ".")
    requester.publish(1, "", name, b"pong", correlation_id="1")
    got = requester.expect_message(channel=1)
    assert (got.body, got.method.consumer_tag, got.method.routing_key) == (b"pong", "replies", name)


def test_it_returns_a_reply_to_nobody(requester: Client) -> None:
    name = request(requester)
    requester.call(1, "basic.cancel", consumer_tag="replies")
    requester.publish(1, "", name, b"pong", mandatory=True)
    assert requester.expect_message("basic.return", channel=1).method.reply_code == 312


def test_it_tells_whether_the_requester_is_there(requester: Client) -> None:
    name = request(requester)
    answer = requester.call(1, "queue.declare", queue=name, passive=True)
    assert (answer.queue, answer.consumer_count) == (name, 1)


def test_it_never_gives_two_requesters_one_name(requester: Client) -> None:
    first = request(requester)
    requester.call(1, "basic.cancel", consumer_tag="replies")
    requester.call(1, "basic.consume", queue=PSEUDO, no_ack=True)
    assert request(requester) != first


@pytest.mark.parametrize(
    ("ask", "where"),
    [
        (lambda c: c.publish(1, "", "nowhere", b"x", reply_to=PSEUDO), (60, 40)),
        (lambda c: c.send_method(1, "basic.consume", queue=PSEUDO), (60, 20)),
    ],
)
def test_it_refuses_what_cannot_work(
    client: Client, ask: Callable[[Client], None], where: tuple[int, int]
) -> None:
    ask(client)
    client.expect_channel_close(1, 406, *where)


def test_it_refuses_a_second_reply_consumer(requester: Client) -> None:
    requester.send_method(1, "basic.consume", queue=PSEUDO, no_ack=True)
    requester.expect_channel_close(1, 406, 60, 20, "already set")


def test_it_binds_no_pseudo_queue(client: Client) -> None:
    client.send_method(1, "queue.bind", queue=PSEUDO, exchange="amq.direct", routing_key="k")
    client.expect_channel_close(1, 403, 50, 20)


def test_a_reply_that_comes_before_the_consumer_keeps_no_later_one_from_it(
    client: Client, other: Client, name: str
) -> None:
    other.call(1, "queue.declare", queue=name)
    other.call(1, "basic.consume", queue=name, no_ack=True)
    # Consume-ok waits for the declaration to be on disk, and the request does not.
    client.send(
        raw.method(1, "queue.declare", queue=f"{name}-durable", durable=True)
        + raw.method(1, "basic.consume", queue=PSEUDO, no_ack=True, consumer_tag="replies")
        + raw.publish(1, "", name, b"early", reply_to=PSEUDO)
    )
    request = other.expect_message(channel=1)
    other.publish(1, "", request.properties["reply_to"], b"early")
    client.expect("queue.declare-ok", 1)
    client.expect("basic.consume-ok", 1)
    client.publish(1, "", name, b"later", reply_to=PSEUDO)
    request = other.expect_message(channel=1)
    other.publish(1, "", request.properties["reply_to"], b"later")
    reply = client.expect_message(channel=1)
    if reply.body == b"early":
        reply = client.expect_message(channel=1)
    assert reply.body == b"later"


@pytest.mark.parametrize("header", ["CC", "BCC"])
def test_a_reply_reaches_the_requester_beside_queues(
    requester: Client, other: Client, name: str, header: str
) -> None:
    other.call(1, "queue.declare", queue=name)
    key = request(requester)
    other.publish(1, "", key, b"by its key", headers={header: [name]})
    assert requester.expect_message(channel=1).body == b"by its key"
    other.publish(1, "", name, b"by a copy", headers={header: [key]})
    assert requester.expect_message(channel=1).body == b"by a copy"
    bodies = [got.body for got in (other.get(1, name), other.get(1, name)) if got is not None]
    assert bodies == [b"by its key", b"by a copy"]


def test_a_reply_that_is_named_again_and_again_comes_once(requester: Client, other: Client) -> None:
    key = request(requester)
    other.publish(1, "", key, b"once", headers={"CC": [key, key], "BCC": [key]})
    assert requester.expect_message(channel=1).body == b"once"
    requester.fence(1)

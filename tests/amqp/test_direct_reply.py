"""Direct reply-to: requests and replies without a queue of one's own."""

from collections.abc import Callable

import pytest

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

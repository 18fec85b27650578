"""Bodies that the socket gets from where they lie: whole and in order, however slowly they are
taken and whatever is written between them."""

from __future__ import annotations

import hashlib

import pytest

from tests.amqp.raw import Client
from tests.appliance import Appliance

SIZES = (32 * 1024 - 1, 32 * 1024, 100_000, 131_064, 131_065)
"""Around the shortest one that is not copied, and the longest that fits into a frame."""


def made(number: int, size: int) -> bytes:
    """Of which no part is like another."""
    piece = hashlib.sha256(b"%d" % number).digest()
    return (piece * (size // len(piece) + 1))[:size]


@pytest.mark.parametrize("size", SIZES)
def test_a_slow_consumer_has_every_body_whole_and_in_order(
    shared_leveret: Appliance, name: str, size: int
) -> None:
    count = 60  # several times what its socket takes
    address = shared_leveret.host, shared_leveret.amqp_port
    with Client.open(address) as slow, Client.open(address) as publisher:
        publisher.call(1, "queue.declare", queue=name)
        slow.call(1, "basic.consume", queue=name, no_ack=True)
        for number in range(count):
            publisher.publish(1, "", name, made(number, size))
        publisher.fence(1)
        for number in range(count):
            assert slow.expect_message().body == made(number, size)
        publisher.call(1, "queue.delete", queue=name)


def test_confirms_and_small_messages_lie_between_them_as_they_came(
    shared_leveret: Appliance, name: str
) -> None:
    address = shared_leveret.host, shared_leveret.amqp_port
    with Client.open(address, channels=(1, 2)) as client:
        client.call(1, "confirm.select")
        client.call(1, "queue.declare", queue=name)
        client.call(2, "basic.consume", queue=name, no_ack=True)
        sent = [made(number, (100_000, 5, 40_000)[number % 3]) for number in range(90)]
        for each in sent:
            client.publish(1, "", name, each)
        bodies, confirmed = [], 0
        while len(bodies) < len(sent) or confirmed < len(sent):
            got = client.read_method()
            if got.name == "basic.deliver":
                bodies.append(client.read_content(got).body)
            else:
                assert got.name == "basic.ack"
                confirmed = got.delivery_tag
        assert bodies == sent
        client.send_method(1, "queue.delete", queue=name)


def test_a_get_has_its_body_and_the_answer_behind_it(shared_leveret: Appliance, name: str) -> None:
    with Client.open((shared_leveret.host, shared_leveret.amqp_port)) as client:
        client.call(1, "queue.declare", queue=name)
        for number in range(3):
            client.publish(1, "", name, made(number, 100_000))
        for number in range(3):
            got = client.get(1, name, no_ack=True)
            assert got is not None
            assert got.body == made(number, 100_000)
        assert client.get(1, name, no_ack=True) is None
        client.call(1, "queue.delete", queue=name)

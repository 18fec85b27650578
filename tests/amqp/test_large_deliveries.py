"""Large bodies on their way to clients: written in parts, and never copied as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.amqp.raw import Client, Message
from tests.amqp.test_large_bodies import LARGE, LIMIT, eventually, made, resident
from tests.appliance import Appliance
from tests.conftest import Make

HUGE = 16 * LIMIT
"""More than the buffers of a socket hold, and more than is copied."""


@pytest.fixture
def queues(client: Client, name: str) -> Iterator[list[str]]:
    """Two, bound to a fanout exchange of the test's name."""
    client.call(1, "exchange.declare", exchange=name, type="fanout", auto_delete=True)
    names = [f"{name}-1", f"{name}-2"]
    for queue in names:
        client.call(1, "queue.declare", queue=queue, durable=True)
        client.call(1, "queue.bind", queue=queue, exchange=name)
    yield names
    with Client.open(client.socket.getpeername()[:2]) as last:
        for queue in names:
            last.call(1, "queue.delete", queue=queue)


def consumed(client: Client, queue: str, channel: int = 1) -> None:
    client.call(channel, "basic.consume", queue=queue, consumer_tag=queue, no_ack=True)


def test_deliveries_of_a_connection_keep_their_order(
    client: Client, other: Client, queues: list[str], name: str
) -> None:
    other.call(2, "channel.open")
    consumed(other, queues[0])
    consumed(other, queues[1], 2)
    sent = [b"small", made(LARGE), b"between", made(HUGE), made(LARGE + 1), b"last"]
    for data in sent:
        client.publish(1, name, "", data)
    found: dict[int, list[bytes]] = {1: [], 2: []}
    for _ in range(2 * len(sent)):
        start = other.expect("basic.deliver")
        found[start.channel].append(other.read_content(start).body)
    assert found == {1: sent, 2: sent}


def test_replies_and_gets_come_in_order_behind_it(client: Client, queues: list[str]) -> None:
    queue = queues[0]
    for data in (made(HUGE), b"small", made(LARGE)):
        client.publish(1, "", queue, data)
    client.fence(1)
    for _ in range(3):
        client.send_method(1, "basic.get", queue=queue, no_ack=True)
    client.send_method(1, "basic.get", queue=queue, no_ack=True)
    client.send_method(1, "queue.declare", queue=queue, passive=True)
    bodies = []
    for _ in range(3):
        bodies.append(client.read_content(client.expect("basic.get-ok")).body)
    assert bodies == [made(HUGE), b"small", made(LARGE)]
    client.expect("basic.get-empty")
    client.expect("queue.declare-ok")


def test_an_unacked_one_is_delivered_again_whole(client: Client, queues: list[str]) -> None:
    queue = queues[0]
    client.publish(1, "", queue, made(HUGE), message_id="m")
    with Client.open(client.socket.getpeername()[:2]) as one:
        one.call(1, "basic.consume", queue=queue)
        assert one.expect_message().body == made(HUGE)
    consumed(client, queue)
    again = client.expect_message()
    assert again.redelivered
    assert again.properties["message_id"] == "m"
    assert again.body == made(HUGE)


def test_a_client_may_close_in_the_middle_of_it(client: Client, queues: list[str]) -> None:
    queue = queues[0]
    client.publish(1, "", queue, made(HUGE))
    client.fence(1)
    with Client.open(client.socket.getpeername()[:2]) as one:
        one.call(1, "basic.consume", queue=queue, consumer_tag="c")
        one.expect("basic.deliver")
        one.send_method(
            0, "connection.close", reply_code=200, reply_text="", class_id=0, method_id=0
        )
        while True:  # frames of the body that were written already, then the answer
            found = one.read_frame()
            if found.type == 1:
                break
        assert found.payload == bytes.fromhex("000a0033")
        one.expect_end()
    got = client.get(1, queue, no_ack=True)
    assert got is not None
    assert got.body == made(HUGE)


def test_clients_that_do_not_read_share_its_memory(make_broker: Make) -> None:
    broker = make_broker()
    address = broker.host, broker.amqp_port
    count = 10
    with ExitStack() as stack:
        clients = [stack.enter_context(Client.open(address)) for _ in range(count)]
        for number, client in enumerate(clients):
            client.call(1, "queue.declare", queue=f"q{number}", exclusive=True)
            client.call(1, "queue.bind", queue=f"q{number}", exchange="amq.fanout")
            client.call(1, "basic.consume", queue=f"q{number}", no_ack=True)
        publisher = stack.enter_context(Client.open(address))
        before = resident(broker)
        publisher.publish(1, "amq.fanout", "", made(HUGE))
        publisher.fence(1)
        starts = [client.expect("basic.deliver") for client in clients]
        # A copy for each of them would be ten times its size, and as much in their transports.
        assert resident(broker) - before < 4 * HUGE
        for client, start in zip(clients, starts, strict=True):
            assert client.read_content(start).body == made(HUGE)
    eventually(lambda: resident(broker) - before < 2 * HUGE)
    broker.close()


def test_it_is_read_from_disk_after_a_start(make_broker: Make) -> None:
    broker = make_broker()
    with Client.open((broker.host, broker.amqp_port)) as client:
        persistent(client, "q", [made(HUGE), b"small", made(LARGE)])
    broker.stop()
    broker.start()
    with Client.open((broker.host, broker.amqp_port)) as client:
        consumed(client, "q")
        bodies = [message.body for message in client.expect_messages(3)]
    assert bodies == [made(HUGE), b"small", made(LARGE)]
    broker.close()


def test_a_deleted_queue_keeps_none(make_broker: Make) -> None:
    broker = make_broker()
    with Client.open((broker.host, broker.amqp_port)) as client:
        persistent(client, "q", [made(HUGE)])
    broker.stop()
    broker.start()
    with Client.open((broker.host, broker.amqp_port)) as client:
        client.publish(1, "", "q", b"")  # the connection remembers where it went
        client.fence(1)
        before = resident(broker)
        got = client.get(1, "q")
        assert got is not None and got.body == made(HUGE)
        client.call(1, "queue.delete", queue="q")
        eventually(lambda: resident(broker) - before < HUGE // 2)
    broker.close()


def test_a_damaged_one_is_dropped_and_its_neighbours_are_not(make_broker: Make) -> None:
    broker = make_broker()
    with Client.open((broker.host, broker.amqp_port)) as client:
        persistent(client, "q", [made(HUGE), b"small", made(LARGE)])
    broker.stop()
    damage(broker, made(HUGE))
    broker.start()
    with Client.open((broker.host, broker.amqp_port)) as client:
        consumed(client, "q")
        assert [message.body for message in client.expect_messages(2)] == [b"small", made(LARGE)]
    assert "is damaged; its message is dropped" in broker.log()
    broker.close()


def persistent(client: Client, queue: str, bodies: list[bytes]) -> None:
    """Into a durable queue, and safe."""
    client.call(1, "queue.declare", queue=queue, durable=True)
    client.call(1, "confirm.select")
    for data in bodies:
        client.publish(1, "", queue, data, delivery_mode=2)
    client.expect_confirms(1, len(bodies))


def damage(broker: Appliance, data: bytes) -> None:
    """Changes one bit of a body, in the file where it lies."""
    place, path = next(
        (place, path)
        for path in Path(broker.data_dir).rglob("*.bdy")
        if (place := path.read_bytes().find(data)) >= 0
    )
    with path.open("r+b") as file:
        file.seek(place + len(data) // 2)
        bit = file.read(1)[0] ^ 1
        file.seek(-1, 1)
        file.write(bytes([bit]))


@pytest.mark.parametrize("kind", ["classic", "stream"])
def test_it_moves_on_as_a_dead_letter(
    client: Client, other: Client, queues: list[str], name: str, kind: str
) -> None:
    last = f"{name}-last"
    arguments: dict[str, Any] = {"x-queue-type": kind}
    client.call(1, "queue.declare", queue=last, durable=True, arguments=arguments)
    client.call(1, "queue.bind", queue=last, exchange=name)
    source = f"{name}-source"
    dying = {"x-dead-letter-exchange": name}
    client.call(1, "queue.declare", queue=source, arguments=dying)
    for data in (made(HUGE), b"small"):
        client.publish(1, "", source, data)
    client.call(1, "basic.consume", queue=source, consumer_tag="c")
    for message in client.expect_messages(2):
        client.send_method(1, "basic.reject", delivery_tag=message.tag, requeue=False)
    for queue in (*queues, last):
        other.call(1, "basic.qos", prefetch_count=10)
        offset = {"x-stream-offset": "first"} if queue == last and kind == "stream" else {}
        other.call(1, "basic.consume", queue=queue, consumer_tag=queue, arguments=offset)
        found: list[Message] = other.expect_messages(2)
        assert [message.body for message in found] == [made(HUGE), b"small"]
    client.call(1, "basic.cancel", consumer_tag="c")
    client.call(1, "queue.delete", queue=source)
    client.call(1, "queue.delete", queue=last)


def test_a_transaction_gives_it_to_two_queues(client: Client, queues: list[str], name: str) -> None:
    client.call(2, "channel.open")
    client.call(2, "tx.select")
    client.publish(2, name, "", made(LARGE))
    client.publish(2, "", queues[0], made(LARGE + 1))
    assert client.get(1, queues[0]) is None
    client.call(2, "tx.commit")
    bodies = [got.body for _ in range(2) if (got := client.get(1, queues[0], no_ack=True))]
    assert bodies == [made(LARGE), made(LARGE + 1)]
    got = client.get(1, queues[1], no_ack=True)
    assert got is not None
    assert got.body == made(LARGE)

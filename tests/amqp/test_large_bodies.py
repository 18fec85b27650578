"""Bodies in several frames above `body_in_memory`: collected in a file, and like any other else."""

from __future__ import annotations

import os
import random
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.amqp import raw
from tests.amqp.raw import Client
from tests.appliance import Appliance
from tests.conftest import Make
from tests.disks import SmallDisk
from tests.store.test_fail_stop import broker_with_failpoint

LIMIT = 1 << 20
FRAME = 131072 - 8
SIZES = (LIMIT - 1, LIMIT, LIMIT + 1, 9 * FRAME, 9 * FRAME + 1, 3 * LIMIT + 17)
LARGE = LIMIT + 70_001
WAIT_S = 60.0


def made(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def nameless(broker: Appliance) -> list[int]:
    """The sizes of the files without a name that the broker holds open in its data directory."""
    sizes = []
    for link in descriptors(broker):
        try:
            target = str(link.readlink())
            if target.startswith(str(broker.data_dir)) and target.endswith("(deleted)"):
                sizes.append(link.stat().st_size)
        except OSError:
            # Closed meanwhile.
            continue
    return sizes


def descriptors(broker: Appliance) -> list[Path]:
    return list(Path(f"/proc/{broker.pids['broker']}/fd").iterdir())


def eventually(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.01)


def resident(broker: Appliance) -> int:
    pages = Path(f"/proc/{broker.pids['broker']}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def queue(client: Client, name: str) -> Iterator[str]:
    client.call(1, "queue.declare", queue=name, durable=True)
    yield name
    with Client.open(client.socket.getpeername()[:2]) as last:
        last.call(1, "queue.delete", queue=name)


@pytest.mark.parametrize("size", SIZES)
def test_a_body_round_the_limit_arrives_whole(client: Client, queue: str, size: int) -> None:
    client.call(1, "confirm.select")
    client.publish(1, "", queue, made(size), delivery_mode=2, message_id="m")
    client.expect_confirms(1, 1)
    got = client.get(1, queue, no_ack=True)
    assert got is not None
    assert got.properties["message_id"] == "m"
    assert got.body == made(size)


def test_it_comes_in_any_pieces(client: Client, queue: str) -> None:
    client.call(1, "confirm.select")
    data = raw.publish(1, "", queue, made(LARGE)) + raw.publish(1, "", queue, b"behind")
    chance = random.Random(5)
    at = 0
    while at < len(data):
        size = chance.choice((1, 7, 900, 60_000, 200_000))
        client.send(data[at : at + size])
        at += size
    client.expect_confirms(1, 2)
    bodies = [got.body for _ in range(2) if (got := client.get(1, queue, no_ack=True))]
    assert bodies == [made(LARGE), b"behind"]


def test_what_is_sent_behind_it_stays_behind_it(client: Client, queue: str) -> None:
    client.call(1, "confirm.select")
    client.call(2, "channel.open")
    client.send(
        raw.publish(1, "", queue, b"first")
        + raw.publish(1, "", queue, made(LARGE))
        + raw.publish(2, "", queue, b"third")
        + raw.publish(1, "", queue, made(2 * LARGE))
        + raw.publish(1, "", queue, b"fifth")
        + raw.method(1, "queue.declare", queue=queue, passive=True)
    )
    confirmed = 0
    answered = None
    while confirmed < 4 or answered is None:
        got = client.read_method()
        if got.name == "basic.ack":
            confirmed = got.delivery_tag
        else:
            answered = got
    assert answered.name == "queue.declare-ok"
    assert answered.message_count == 5
    bodies = [got.body for _ in range(5) if (got := client.get(1, queue, no_ack=True))]
    assert bodies == [b"first", made(LARGE), b"third", made(2 * LARGE), b"fifth"]


def test_channels_may_send_their_frames_in_turns(client: Client, queue: str) -> None:
    numbers = range(1, 6)
    for number in numbers[1:]:
        client.call(number, "channel.open")
    frames = []
    for number in numbers:
        data = made(LARGE + number)
        client.send(raw.method(number, "basic.publish", exchange="", routing_key=queue))
        client.send(raw.header(number, len(data)))
        frames.append([raw.body(number, data[at : at + FRAME]) for at in range(0, LARGE, FRAME)])
    for turn in zip(*frames, strict=True):
        client.send(b"".join(turn))
    client.call(1, "queue.declare", queue=queue, passive=True)
    bodies = {got.body for _ in numbers if (got := client.get(1, queue, no_ack=True))}
    assert bodies == {made(LARGE + number) for number in numbers}


@pytest.mark.parametrize(
    "arguments",
    [{"x-max-priority": 5}, {"x-confirm-on": "ack"}, {"x-queue-type": "quorum"}],
    ids=lambda given: next(iter(given)),
)
def test_it_reaches_a_queue_with(
    client: Client, other: Client, name: str, arguments: dict[str, Any]
) -> None:
    client.call(1, "queue.declare", queue=name, durable=True, arguments=arguments)
    client.call(1, "confirm.select")
    client.publish(1, "", name, made(LARGE), delivery_mode=2, priority=3)
    if "x-confirm-on" not in arguments:
        client.expect_confirms(1, 1)
    other.call(1, "basic.consume", queue=name, consumer_tag="c")
    message = other.expect_message()
    assert message.body == made(LARGE)
    other.send_method(1, "basic.ack", delivery_tag=message.tag)
    if "x-confirm-on" in arguments:
        client.expect_confirms(1, 1)
    client.call(1, "queue.delete", queue=name)


def test_it_reaches_a_stream(client: Client, other: Client, name: str) -> None:
    arguments = {"x-queue-type": "stream"}
    client.call(1, "queue.declare", queue=name, durable=True, arguments=arguments)
    client.call(1, "confirm.select")
    client.publish(1, "", name, made(LARGE))
    client.expect_confirms(1, 1)
    other.call(1, "basic.qos", prefetch_count=1)
    other.call(1, "basic.consume", queue=name, arguments={"x-stream-offset": "first"})
    assert other.expect_message().body == made(LARGE)
    client.call(1, "queue.delete", queue=name)


def test_it_reaches_several_queues_after_a_delay(client: Client, other: Client, name: str) -> None:
    arguments = {"x-delayed-type": "fanout"}
    client.call(1, "exchange.declare", exchange=name, type="x-delayed-message", arguments=arguments)
    for queue in (f"{name}-1", f"{name}-2"):
        client.call(1, "queue.declare", queue=queue)
        client.call(1, "queue.bind", queue=queue, exchange=name)
        other.call(1, "basic.consume", queue=queue, consumer_tag=queue, no_ack=True)
    client.publish(1, name, "k", made(LARGE), headers={"x-delay": 20})
    assert [message.body for message in other.expect_messages(2, 1)] == [made(LARGE)] * 2
    for queue in (f"{name}-1", f"{name}-2"):
        client.call(1, "queue.delete", queue=queue)
    client.call(1, "exchange.delete", exchange=name)


def test_a_transaction_holds_it_until_its_commit(client: Client, queue: str) -> None:
    client.call(1, "tx.select")
    client.publish(1, "", queue, made(LARGE))
    client.call(1, "tx.rollback")
    client.publish(1, "", queue, made(LARGE + 1))
    client.call(1, "tx.commit")
    client.call(2, "channel.open")
    got = client.get(2, queue, no_ack=True)
    assert got is not None
    assert got.body == made(LARGE + 1)
    assert client.get(2, queue) is None


def test_an_unroutable_one_comes_back(client: Client, name: str) -> None:
    client.call(1, "confirm.select")
    client.publish(1, "", f"{name}-nowhere", made(LARGE), mandatory=True)
    assert client.expect_message("basic.return").body == made(LARGE)
    client.expect("basic.ack", delivery_tag=1)


def test_an_error_comes_when_it_is_whole_and_the_connection_goes_on(
    client: Client, queue: str
) -> None:
    client.call(2, "channel.open")
    client.send(
        raw.publish(1, "no-such-exchange", "k", made(LARGE)) + raw.publish(2, "", queue, b"next")
    )
    client.expect_channel_close(1, 404, 60, 40, "no exchange 'no-such-exchange'")
    got = client.get(2, queue, no_ack=True)
    assert got is not None
    assert got.body == b"next"


def half_sent(client: Client, queue: str, size: int, sent: int) -> None:
    """Everything of a large publish but its end."""
    client.send(
        raw.method(1, "basic.publish", exchange="", routing_key=queue)
        + raw.header(1, size)
        + raw.body(1, bytes(sent))
    )


@pytest.mark.parametrize("how", ["cut", "closed with an error"])
def test_its_file_goes_when_it_is_given_up(make_broker: Make, how: str) -> None:
    broker = make_broker()
    with Client.open((broker.host, broker.amqp_port)) as client:
        half_sent(client, "q", 8 * LIMIT, 4 * LIMIT)
        eventually(lambda: len(nameless(broker)) == 1)
        before = len(descriptors(broker))
        if how == "cut":
            client.socket.shutdown(socket.SHUT_RDWR)
        else:
            client.send_method(1, "channel.close", reply_code=200, reply_text="")
            client.expect_connection_close(505, 60, 40)
    eventually(lambda: len(nameless(broker)) == 0)
    eventually(lambda: len(descriptors(broker)) <= before - 2)
    assert not [name for name in broker.data_dir.iterdir() if name.name.startswith(".content")]
    broker.close()


def test_it_ends_cleanly_while_one_is_half_sent(make_broker: Make) -> None:
    broker = make_broker()
    with Client.open((broker.host, broker.amqp_port)) as client:
        half_sent(client, "q", 8 * LIMIT, 4 * LIMIT)
        eventually(lambda: len(nameless(broker)) == 1)
        broker.signal(signal.SIGTERM)
        client.expect_connection_close(320, 0, 0)
    assert broker.wait() == 0


def test_one_more_than_may_be_half_received_is_refused(make_broker: Make) -> None:
    broker = make_broker(unfinished_max=2)
    address = broker.host, broker.amqp_port
    with Client.open(address) as one, Client.open(address) as two, Client.open(address) as three:
        for client in (one, two):
            half_sent(client, "q", 2 * LIMIT, LIMIT)
        eventually(lambda: len(nameless(broker)) == 2)
        half_sent(three, "q", 2 * LIMIT, LIMIT)
        three.expect_channel_close(1, 406, 60, 40, "2 large messages are being received")
        # Its rest was ignored; one that is finished makes room.
        one.send(raw.body(1, bytes(LIMIT)))
        one.fence(1)
        eventually(lambda: len(nameless(broker)) == 1)
        three.call(1, "channel.open")
        three.publish(1, "", "q", made(LARGE), mandatory=True)
        assert three.expect_message("basic.return").body == made(LARGE)
    broker.close()


def test_a_full_disk_closes_its_channel_and_nothing_else(
    make_broker: Make, small_disk: SmallDisk
) -> None:
    broker = make_broker(data_dir=small_disk.path / "data", disk_free_limit="4096")
    with Client.open((broker.host, broker.amqp_port)) as client:
        client.call(1, "queue.declare", queue="q", durable=True)
        half_sent(client, "q", 16 * LIMIT, LIMIT)
        eventually(lambda: len(nameless(broker)) == 1)
        small_disk.fill(leave=2 * LIMIT)
        client.send(raw.body(1, bytes(8 * LIMIT)))
        client.expect_channel_close(
            1, 406, 60, 40, f"cannot take a message of {16 * LIMIT} bytes: No space left on device"
        )
        eventually(lambda: len(nameless(broker)) == 0)
        small_disk.clear()
        client.call(1, "channel.open")
        client.call(1, "confirm.select")
        client.publish(1, "", "q", made(LARGE), delivery_mode=2)
        got = client.read_method()
        while got.name != "basic.ack":
            # The alarm may have been seen meanwhile.
            assert got.name in ("connection.blocked", "connection.unblocked")
            got = client.read_method()
        client.call(2, "channel.open")
        message = client.get(2, "q", no_ack=True)
        assert message is not None
        assert message.body == made(LARGE)
    broker.close()


def test_a_disk_that_fails_with_it_fails_no_one_else(tmp_path: Path) -> None:
    # Nothing was promised of an unfinished message: this is no reason to end.
    broker = broker_with_failpoint(tmp_path, "write_content:3:5")
    try:
        with Client.open(("127.0.0.1", broker.port)) as client:
            client.call(1, "queue.declare", queue="q", durable=True)
            half_sent(client, "q", 2 * LIMIT, LIMIT)
            client.expect_channel_close(1, 406, 60, 40, "Input/output error")
            client.call(1, "channel.open")
            client.call(1, "confirm.select")
            client.publish(1, "", "q", made(LARGE), delivery_mode=2)
            client.expect_confirms(1, 1)
    finally:
        broker.stop()


def test_a_hundred_half_sent_ones_take_little_memory(make_broker: Make) -> None:
    size, sent, count = 16 * LIMIT, 8 * LIMIT, 100
    broker = make_broker()
    address = broker.host, broker.amqp_port
    start = raw.method(1, "basic.publish", exchange="", routing_key="q") + raw.header(1, size)
    half = raw.body(1, bytes(sent))
    with ExitStack() as stack:
        clients = [stack.enter_context(Client.open(address)) for _ in range(count)]
        clients[0].call(1, "queue.declare", queue="q", durable=True)
        before = resident(broker)
        for client in clients:
            client.send(start + half)
        eventually(lambda: len(nameless(broker)) == count)
        eventually(lambda: sum(nameless(broker)) == count * (size // 2))
        assert resident(broker) - before < 100 * LIMIT
        for client in clients[:10]:
            client.send(half)
            client.fence(1)
        assert resident(broker) - before < 250 * LIMIT
        assert clients[0].call(1, "queue.declare", queue="q", passive=True).message_count == 10
    eventually(lambda: len(nameless(broker)) == 0)
    broker.close()

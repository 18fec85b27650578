"""A channel's replies keep their order, also when gets wait for a disk that does not answer; other
channels go on."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker.kernel.contracts import Topology
from broker.wire.channel import Channel
from broker.wire.frame_parser import FrameParser
from broker.wire.gets import AHEAD_MAX
from tests.amqp import raw
from tests.amqp.raw import Client
from tests.appliance import Appliance
from tests.bench.leveret import Leveret
from tests.store.driven import Driven, ready
from tests.store.stalled_disk import nothing_comes, overview, stallable, wait_for

MESSAGES = 3


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Leveret]:
    broker = stallable(tmp_path_factory.mktemp("order"))
    yield broker
    broker.stop()


@pytest.fixture
def client(broker: Leveret) -> Iterator[Client]:
    with Client.open(("127.0.0.1", broker.port)) as client:
        yield client


@pytest.fixture
def other(broker: Leveret) -> Iterator[Client]:
    with Client.open(("127.0.0.1", broker.port)) as other:
        yield other


@pytest.fixture
def written(other: Client, name: str) -> Iterator[str]:
    """A durable queue whose messages are on disk and not in memory."""
    other.call(1, "queue.declare", queue=name, durable=True)
    other.call(1, "confirm.select")
    for number in range(MESSAGES):
        other.publish(1, "", name, b"%d" % number, delivery_mode=2)
    other.expect_confirms(1, MESSAGES)
    other.call(1, "channel.close", reply_code=200, reply_text="", class_id=0, method_id=0)
    other.call(1, "channel.open")
    yield name
    other.call(1, "queue.delete", queue=name)


@pytest.fixture
def quick(other: Client, name: str) -> Iterator[str]:
    """A queue in memory, with one message."""
    quick = f"{name}.quick"
    other.call(1, "queue.declare", queue=quick)
    other.publish(1, "", quick, b"quick")
    yield quick
    other.call(1, "queue.delete", queue=quick)


def count_of(client: Client, queue: str) -> int:
    found: int = client.call(1, "queue.declare", queue=queue, passive=True).message_count
    return found


@contextmanager
def stalled(broker: Leveret, name: str) -> Iterator[None]:
    """The thread that writes is stuck in a sync: no round begins."""
    assert broker.server is not None
    is_set = broker.directory / "data/run/stall-set"
    with Client.open(("127.0.0.1", broker.port)) as publisher:
        publisher.call(1, "queue.declare", queue=f"{name}.stuck", durable=True)
        os.kill(broker.server.pid, signal.SIGUSR1)
        wait_for(is_set.exists)
        publisher.publish(1, "", f"{name}.stuck", b"", delivery_mode=2)
        publisher.call(1, "confirm.select")
        publisher.publish(1, "", f"{name}.stuck", b"", delivery_mode=2)
        wait_for(lambda: bool(overview(broker.directory)["alarms"]))
        try:
            yield
        finally:
            os.kill(broker.server.pid, signal.SIGUSR1)
            publisher.expect("basic.ack", 1)
            is_set.unlink()
        publisher.call(1, "queue.delete", queue=f"{name}.stuck")


def get(queue: str, *, no_ack: bool = False, channel: int = 1) -> bytes:
    return raw.method(channel, "basic.get", queue=queue, no_ack=no_ack)


def test_replies_behind_a_get_wait_and_other_channels_go_on(
    broker: Leveret, client: Client, other: Client, written: str, quick: str, name: str
) -> None:
    client.call(2, "channel.open")
    with stalled(broker, name):
        client.send(
            get(written, no_ack=True)
            + get(written)
            + get(written)
            + get(written)
            + raw.method(1, "basic.qos")
            + raw.method(1, "queue.declare", queue=quick, passive=True)
        )
        client.send(get(quick, channel=2) + raw.method(2, "basic.qos"))
        assert client.expect_message("basic.get-ok", 2).body == b"quick"
        client.expect("basic.qos-ok", 2)
        assert nothing_comes(client)
    for number in range(MESSAGES):
        got = client.expect_message("basic.get-ok", 1)
        assert (got.body, got.tag) == (b"%d" % number, number + 1)
        assert got.method.message_count == MESSAGES - 1 - number
    client.expect("basic.get-empty", 1)
    client.expect("basic.qos-ok", 1)
    client.expect("queue.declare-ok", 1)
    client.send_method(1, "basic.ack", delivery_tag=3, multiple=True)
    client.fence(1)


def test_a_get_that_could_be_answered_waits_for_the_one_before_it(
    broker: Leveret, client: Client, other: Client, written: str, quick: str, name: str
) -> None:
    with stalled(broker, name):
        client.send(get(written) + get(quick) + raw.method(1, "basic.qos"))
        wait_for(lambda: count_of(other, quick) == 0)
        assert nothing_comes(client)
    first = client.expect_message("basic.get-ok", 1)
    second = client.expect_message("basic.get-ok", 1)
    assert [(each.body, each.tag) for each in (first, second)] == [(b"0", 1), (b"quick", 2)]
    client.expect("basic.qos-ok", 1)
    client.send_method(1, "basic.nack", delivery_tag=2, multiple=True, requeue=True)
    got = client.get(1, quick)
    assert got is not None
    assert got.redelivered
    assert got.tag == 3


def test_acks_up_to_a_delivery_mean_no_get_that_is_told_later(
    broker: Leveret, client: Client, other: Client, written: str, quick: str, name: str
) -> None:
    with stalled(broker, name):
        client.send(get(written) + get(written))
        client.send(raw.method(1, "basic.consume", queue=quick, consumer_tag="c", nowait=True))
        delivered = client.expect_message("basic.deliver", 1)
        assert (delivered.body, delivered.tag) == (b"quick", 1)
        client.send_method(1, "basic.ack", delivery_tag=1, multiple=True)
        assert nothing_comes(client)
    assert [client.expect_message("basic.get-ok", 1).tag for _ in range(2)] == [2, 3]
    client.send_method(1, "basic.ack", delivery_tag=2)
    client.fence(1)
    client.call(1, "channel.close", reply_code=200, reply_text="", class_id=0, method_id=0)
    client.call(1, "channel.open")
    got = [client.get(1, written) for _ in range(MESSAGES)]
    assert [(each.body, each.redelivered) for each in got if each] == [(b"1", True), (b"2", False)]


@pytest.mark.parametrize("how", ["channel", "error", "connection", "cut"])
def test_open_gets_end_with_their_channel(
    broker: Leveret, client: Client, other: Client, written: str, quick: str, name: str, how: str
) -> None:
    gets = get(written) + get(written, no_ack=True) + get(quick)
    with stalled(broker, name):
        client.send(gets)
        wait_for(lambda: count_of(other, quick) == 0)
        if how == "channel":
            client.send_method(
                1, "channel.close", reply_code=200, reply_text="", class_id=0, method_id=0
            )
            client.expect("channel.close-ok", 1)
            client.call(1, "channel.open")
        elif how == "error":
            client.send_method(1, "basic.qos")
            client.send_method(1, "queue.declare", queue=f"{name}.none", passive=True)
            client.expect("basic.qos-ok", 1)
            client.expect_channel_close(1, 404, 50, 10, "NOT_FOUND")
            client.call(1, "channel.open")
        elif how == "connection":
            client.send_method(
                0, "connection.close", reply_code=200, reply_text="", class_id=0, method_id=0
            )
        else:
            client.cut()
        wait_for(lambda: count_of(other, quick) == 1)
        got = other.get(1, quick, no_ack=True)
        assert got is not None
        assert got.redelivered
    if how == "connection":
        client.expect("connection.close-ok", 0)
    got_in_the_end = [other.get(1, written, no_ack=True) for _ in range(MESSAGES + 1)]
    assert [each and each.body for each in got_in_the_end] == [b"0", b"1", b"2", None]


def test_a_deleted_queue_answers_its_open_gets(
    broker: Leveret, client: Client, other: Client, written: str, quick: str, name: str
) -> None:
    with stalled(broker, name):
        client.send(get(written) + get(quick) + raw.method(1, "basic.qos"))
        wait_for(lambda: count_of(other, quick) == 0)
        other.send_method(1, "queue.delete", queue=written)
        client.expect("basic.get-empty", 1)
        assert client.expect_message("basic.get-ok", 1).tag == 1
        client.expect("basic.qos-ok", 1)
    other.expect("queue.delete-ok", 1)


def test_more_gets_than_are_under_way_at_a_time_are_answered_in_order(
    broker: Leveret, client: Client, other: Client, written: str, quick: str, name: str
) -> None:
    count = 2 * AHEAD_MAX + 5
    for number in range(count - 1):
        other.publish(1, "", quick, b"%d" % number)
    with stalled(broker, name):
        client.send(get(written) + get(quick) * count + raw.method(1, "basic.qos"))
        wait_for(lambda: count_of(other, quick) == count - AHEAD_MAX + 1)
        assert nothing_comes(client)
        assert count_of(other, quick) == count - AHEAD_MAX + 1
    answers = [client.expect_message("basic.get-ok", 1) for _ in range(count + 1)]
    assert [each.tag for each in answers] == [*range(1, count + 2)]
    assert [each.body for each in answers] == [
        b"0",
        b"quick",
        *(b"%d" % number for number in range(count - 1)),
    ]
    client.expect("basic.qos-ok", 1)


def test_pipelined_gets_without_ack_are_answered_before_qos_and_do_not_come_back(
    make_broker: Callable[..., Appliance],
) -> None:
    count = 400
    broker = make_broker(segment_size=65536)
    with Client.open((broker.host, broker.amqp_port)) as client:
        client.call(1, "confirm.select")
        for queue in ("a", "b"):
            client.call(1, "queue.declare", queue=queue, durable=True)
        client.send(
            b"".join(
                raw.publish(1, "", queue, number.to_bytes(4) + bytes(500), delivery_mode=2)
                for number in range(count)
                for queue in ("a", "b")
            )
        )
        client.expect_confirms(1, 2 * count)
        taken = 2 * (count - 50)
        client.send(
            (get("a", no_ack=True) + get("b", no_ack=True)) * (taken // 2)
            + raw.method(1, "basic.qos")
        )
        for number in range(taken):
            got = client.expect_message("basic.get-ok", 1)
            assert (got.tag, int.from_bytes(got.body[:4])) == (number + 1, number // 2)
        client.expect("basic.qos-ok", 1)
        broker.kill()
    broker.start()
    with Client.open((broker.host, broker.amqp_port)) as client:
        for queue in ("a", "b"):
            assert client.call(1, "queue.declare", queue=queue, passive=True).message_count == 50
            first = client.get(1, queue, no_ack=True)
            assert first is not None
            assert int.from_bytes(first.body[:4]) == count - 50


def test_who_waits_to_hear_of_a_streams_consumer_hears_of_the_streams_end(
    broker: Leveret, client: Client, other: Client, name: str
) -> None:
    other.call(1, "queue.declare", queue=name, durable=True, arguments={"x-queue-type": "stream"})
    client.call(1, "basic.qos", prefetch_count=10)
    with stalled(broker, name):
        client.send(
            raw.method(1, "queue.declare", queue=f"{name}.new", durable=True)
            + raw.method(1, "basic.consume", queue=name, consumer_tag="c")
            + raw.method(2, "channel.open")
        )
        client.expect("channel.open-ok", 2)
        got = other.call(1, "queue.declare", queue=name, passive=True)
        assert got.consumer_count == 1
        other.send_method(1, "queue.delete", queue=name)
        assert nothing_comes(client)
    client.expect("queue.declare-ok", 1)
    client.expect("basic.consume-ok", 1)
    client.expect("basic.cancel", 1, consumer_tag="c")
    other.expect("queue.delete-ok", 1)
    client.call(1, "queue.delete", queue=f"{name}.new")


class Written:
    """The other end of an output."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data


def end_of_round(driven: Driven) -> None:
    assert ready([driven.persister.writer.event_fd], 20)
    driven.persister.on_written()


def test_each_pipelined_reply_waits_for_its_own_round(tmp_path: Path) -> None:
    driven = Driven(tmp_path)
    transport = Written()
    connection = FrameParser(driven.turn, transport)
    channel = Channel(connection, connection.output, 1, driven.persister, Topology())
    try:
        channel.replies.await_ack()
        channel.replies.send(b"first ")
        driven.turn.run()  # its round is on its way
        channel.replies.await_ack()
        channel.replies.send(b"second ")
        channel.replies.send(b"third ")
        end_of_round(driven)
        driven.turn.run()
        assert transport.data == b"first "
        end_of_round(driven)
        driven.turn.run()
        assert transport.data == b"first second third "
        channel.replies.send(b"fourth")
        driven.turn.run()
        assert transport.data == b"first second third fourth"
    finally:
        driven.stop()


def test_replies_that_are_held_come_before_the_connection_ends(
    broker: Leveret, client: Client, name: str
) -> None:
    close = raw.method(
        0, "connection.close", reply_code=200, reply_text="", class_id=0, method_id=0
    )
    with stalled(broker, name):
        client.send(raw.method(1, "queue.declare", queue=f"{name}.new", durable=True) + close)
        assert nothing_comes(client)
    client.expect("queue.declare-ok", 1)
    client.expect("connection.close-ok", 0)

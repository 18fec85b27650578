"""A full disk stops publishing and nothing else; what was confirmed is there whatever happens."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.store.directory.reserve import KEPT_FOR_START, Reserve
from tests.amqp.raw import Client
from tests.appliance import Appliance
from tests.conftest import Make
from tests.disks import SmallDisk
from tests.store.full_disk import RESERVE, SETTINGS, FullDisk
from tests.store.stalled_disk import wait_for
from tests.store.test_fail_stop import broker_with_failpoint, drain, publish_until_lost

ROUNDS = [
    ("publishing", False, "ram"),
    ("publishing", True, "leveldb"),
    ("another file", False, "leveldb"),
    ("another file", True, "ram"),
    ("acks", False, "ram"),
    ("acks", True, "leveldb"),
]


@pytest.mark.parametrize(("way", "kill", "index"), ROUNDS)
def test_it_loses_nothing_confirmed_drains_and_goes_on_by_itself(
    make_broker: Make, small_disk: SmallDisk, way: str, kill: bool, index: str
) -> None:
    settings = {**SETTINGS, "message_store_index": index}
    if way == "publishing":
        settings["disk_free_limit"] = "54MiB"
    broker = make_broker(data_dir=small_disk.path / "data", **settings)
    full = FullDisk(broker, small_disk, seed=ROUNDS.index((way, kill, index)))
    full.round(way, kill)
    broker.close()


@pytest.fixture
def make_hardly_limited(make_broker: Make, small_disk: SmallDisk) -> Callable[[], Appliance]:
    """A broker whose disk is really full before a publisher is blocked: the reserve carries the
    drain."""
    settings = {**SETTINGS, "disk_free_limit": "4096"}
    return lambda: make_broker(data_dir=small_disk.path / "data", **settings)


def expect_confirmed(client: Client, count: int) -> set[str]:
    """Reads until `count` messages are confirmed. Returns the names of the methods on the way."""
    names: set[str] = set()
    confirmed = 0
    while confirmed < count:
        got = client.read_method()
        names.add(got.name)
        if got.name == "basic.ack":
            confirmed = got.delivery_tag
    return names


@pytest.mark.parametrize("index", ["ram", "leveldb"])
def test_it_stops_cleanly_without_room_for_acks_and_their_messages_come_again(
    make_broker: Make, small_disk: SmallDisk, index: str
) -> None:
    count, acked = 2000, 1500
    broker = make_broker(
        data_dir=small_disk.path / "data",
        embed_below=16,
        message_store_index=index,
        disk_free_limit="4096",
    )
    address = broker.host, broker.amqp_port
    with Client.open(address) as client:
        client.call(1, "confirm.select")
        client.call(1, "exchange.declare", exchange="both", type="fanout", durable=True)
        for queue in ("a", "b"):
            client.call(1, "queue.declare", queue=queue, durable=True)
            client.call(1, "queue.bind", queue=queue, exchange="both")
        for number in range(count):
            client.publish(1, "both", "", number.to_bytes(4) + bytes(60), delivery_mode=2)
        confirmed = 0
        while confirmed < count:
            confirmed = client.expect("basic.ack", 1).delivery_tag
    with Client.open(address, channels=(1, 2)) as client:
        client.call(1, "basic.consume", queue="a", consumer_tag="c")
        tags = [client.expect_message(channel=1).tag for _ in range(count)]
        small_disk.fill()
        client.send_method(1, "basic.ack", delivery_tag=tags[acked - 1], multiple=True)
        # The broker has it, though it cannot write it.
        client.call(2, "queue.declare", queue="b", passive=True)
        broker.process.terminate()
        assert broker.wait() == 0
    assert "messages whose acks could not be written are delivered again" in broker.log()
    assert "Traceback" not in broker.log()
    small_disk.clear()
    broker.start()
    with Client.open((broker.host, broker.amqp_port), channels=(1, 2)) as client:
        got = {}
        ready = client.call(1, "queue.declare", queue="a", passive=True).message_count
        client.call(1, "basic.consume", queue="a", no_ack=True)
        for _ in range(ready):
            message = client.expect_message(channel=1)
            got[int.from_bytes(message.body[:4])] = message.redelivered
        assert set(got) >= set(range(acked, count))
        assert all(got.values())
        client.call(2, "basic.consume", queue="b", no_ack=True)
        bodies = [client.expect_message(channel=2).body[:4] for _ in range(count)]
        assert bodies == [number.to_bytes(4) for number in range(count)]
    broker.close()


def test_it_stops_before_the_limit_even_where_there_is_hardly_any(
    make_hardly_limited: Callable[[], Appliance], small_disk: SmallDisk
) -> None:
    broker = make_hardly_limited()
    full = FullDisk(broker, small_disk, seed=7)
    full.round("another file", False)
    assert "the disk is full" in broker.log()
    broker.close()


def drain_slowly(consumer: Client, queue: str) -> None:
    """Takes and acks what is in the queue, one after the other. How much came in before publishers
    were blocked is a matter of time."""
    ready = consumer.call(1, "queue.declare", queue=queue, passive=True).message_count
    assert ready
    consumer.call(1, "basic.qos", prefetch_count=1)
    consumer.call(1, "basic.consume", queue=queue, consumer_tag="slow")
    for _ in range(ready):
        message = consumer.expect_message(channel=1)
        consumer.send_method(1, "basic.ack", delivery_tag=message.tag)


def test_a_publisher_that_is_not_read_any_more_is_told_too(
    make_hardly_limited: Callable[[], Appliance], small_disk: SmallDisk
) -> None:
    broker = make_hardly_limited()
    FullDisk(broker, small_disk, seed=0)
    with Client.open((broker.host, broker.amqp_port), timeout=60) as client:
        client.call(1, "queue.declare", queue="q", durable=True)
        client.call(1, "confirm.select")
        small_disk.fill()
        # More than the memory for unwritten messages; nothing follows that could be blocked.
        for _ in range(5):
            client.publish(1, "", "q", bytes(400_000), delivery_mode=2)
        client.expect("connection.blocked", 0, reason="low on disk")
        # Others come in meanwhile, consume and ack, though that memory is full.
        with Client.open((broker.host, broker.amqp_port), timeout=60) as consumer:
            drain_slowly(consumer, "q")
        small_disk.clear()
        if "connection.unblocked" not in expect_confirmed(client, 5):
            client.expect("connection.unblocked", 0)
    broker.close()


def test_messages_leave_the_reserve_to_acks_whatever_took_it(
    make_hardly_limited: Callable[[], Appliance], small_disk: SmallDisk
) -> None:
    broker = make_hardly_limited()
    address = broker.host, broker.amqp_port
    FullDisk(broker, small_disk, seed=0)
    with Client.open(address, timeout=60) as client, Client.open(address, timeout=60) as consumer:
        client.call(1, "queue.declare", queue="q", durable=True)
        client.call(1, "queue.declare", queue="other", durable=True)
        client.call(1, "confirm.select")
        client.publish(1, "", "other", b"", delivery_mode=2)
        client.expect("basic.ack", 1)
        small_disk.fill()
        while 0 < small_disk.free < RESERVE // 4:
            small_disk.fill()
        # The mark that it may have been delivered, and its ack, need a file: the reserve is given.
        consumer.call(1, "basic.consume", queue="other", consumer_tag="other")
        message = consumer.expect_message(channel=1)
        consumer.send_method(1, "basic.ack", delivery_tag=message.tag)
        wait_for(lambda: small_disk.free > RESERVE // 2)
        for _ in range(10):
            client.publish(1, "", "q", bytes(300_000), delivery_mode=2)
        client.expect("connection.blocked", 0, reason="low on disk")
        # Each message has a segment of its own, whose acks need a file.
        drain_slowly(consumer, "q")
        small_disk.clear()
        expect_confirmed(client, 10)
    broker.close()


def test_definitions_go_on_while_messages_wait_for_space(
    make_hardly_limited: Callable[[], Appliance], small_disk: SmallDisk
) -> None:
    broker = make_hardly_limited()
    address = broker.host, broker.amqp_port
    FullDisk(broker, small_disk, seed=0)
    with Client.open(address) as client, Client.open(address) as other:
        client.call(1, "queue.declare", queue="q", durable=True)
        client.call(1, "confirm.select")
        client.publish(1, "", "q", bytes(1000), delivery_mode=2)
        client.expect("basic.ack", 1)
        small_disk.fill()
        client.publish(1, "", "q", bytes(300_000), delivery_mode=2)
        other.call(1, "queue.declare", queue="made on a full disk", durable=True)
        small_disk.clear()
        client.expect("basic.ack", 1, delivery_tag=2)
    broker.kill()
    broker.start()
    with Client.open((broker.host, broker.amqp_port)) as client:
        client.call(1, "queue.declare", queue="made on a full disk", passive=True)
        assert client.call(1, "queue.declare", queue="q", passive=True).message_count == 2
    broker.close()


def test_a_consumer_at_the_end_of_a_stream_misses_nothing_that_waited_for_space(
    make_hardly_limited: Callable[[], Appliance], small_disk: SmallDisk
) -> None:
    broker = make_hardly_limited()
    address = broker.host, broker.amqp_port
    FullDisk(broker, small_disk, seed=0)
    with Client.open(address) as client, Client.open(address) as consumer:
        stream = {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 200_000}
        client.call(1, "queue.declare", queue="s", durable=True, arguments=stream)
        client.call(1, "confirm.select")
        consumer.call(1, "basic.qos", prefetch_count=100)
        start = {"x-stream-offset": "first"}
        consumer.call(1, "basic.consume", queue="s", consumer_tag="c", arguments=start)

        def publish(numbers: range) -> None:
            for number in numbers:
                client.publish(1, "", "s", number.to_bytes(4) + bytes(100_000), delivery_mode=2)

        def consume(numbers: range) -> None:
            for number in numbers:
                message = consumer.expect_message(channel=1)
                assert message.body[:4] == number.to_bytes(4)
                consumer.send_method(1, "basic.ack", delivery_tag=message.tag)

        publish(range(5))
        expect_confirmed(client, 5)
        consume(range(5))
        small_disk.fill()
        publish(range(5, 10))
        # The round without space is over when a later one is.
        with Client.open(address) as other:
            other.call(1, "queue.declare", queue="made on a full disk", durable=True)
        small_disk.clear()
        expect_confirmed(client, 10)
        publish(range(10, 15))
        expect_confirmed(client, 15)
        consume(range(5, 15))
    assert "before its time" not in broker.log()
    broker.close()


@pytest.mark.parametrize("is_killed", [False, True])
def test_the_id_of_a_message_that_never_found_space_is_not_remembered(
    make_hardly_limited: Callable[[], Appliance], small_disk: SmallDisk, *, is_killed: bool
) -> None:
    """Else the message would be dropped as a duplicate, and confirmed, when it is sent again."""
    broker = make_hardly_limited()
    FullDisk(broker, small_disk, seed=0)

    def publish(client: Client, numbers: range) -> None:
        for number in numbers:
            client.publish(
                1,
                "",
                "once",
                bytes(100_000),
                headers={"x-deduplication-header": f"{number}"},
                delivery_mode=2,
            )

    with Client.open((broker.host, broker.amqp_port)) as client:
        once = {"x-message-deduplication": True}
        client.call(1, "queue.declare", queue="once", durable=True, arguments=once)
        client.call(1, "confirm.select")
        publish(client, range(1))
        expect_confirmed(client, 1)
        small_disk.fill()
        publish(client, range(1, 6))
        # The round without space is over when a later one is.
        with Client.open((broker.host, broker.amqp_port)) as other:
            other.call(1, "queue.declare", queue="made on a full disk", durable=True)
    if is_killed:
        broker.kill()
    else:
        broker.stop()
    small_disk.clear()
    broker.start()
    with Client.open((broker.host, broker.amqp_port)) as client:
        client.call(1, "confirm.select")
        publish(client, range(6))
        expect_confirmed(client, 6)
        assert client.call(1, "queue.declare", queue="once", passive=True).message_count == 6
    broker.close()


def test_a_stream_that_is_deleted_on_a_full_disk_gives_its_space_back(
    make_hardly_limited: Callable[[], Appliance], small_disk: SmallDisk
) -> None:
    broker = make_hardly_limited()
    FullDisk(broker, small_disk, seed=0)
    with Client.open((broker.host, broker.amqp_port)) as client:
        before = set(broker.data_dir.glob("vhosts/*/queues/*"))
        stream = {"x-queue-type": "stream"}
        client.call(1, "queue.declare", queue="s", durable=True, arguments=stream)
        client.call(1, "confirm.select")
        client.publish(1, "", "s", bytes(100_000), delivery_mode=2)
        expect_confirmed(client, 1)
        (directory,) = set(broker.data_dir.glob("vhosts/*/queues/*")) - before
        small_disk.fill()
        for _ in range(5):
            client.publish(1, "", "s", bytes(100_000), delivery_mode=2)
        with Client.open((broker.host, broker.amqp_port)) as other:
            other.call(1, "queue.declare", queue="made on a full disk", durable=True)
            other.call(1, "queue.delete", queue="s")
        wait_for(lambda: not directory.exists())
    broker.close()


@pytest.mark.parametrize("nth", [2, 5, 30])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
def test_a_write_without_space_is_repeated_and_a_sync_is_not(
    tmp_path: Path, nth: int, error: int
) -> None:
    broker = broker_with_failpoint(tmp_path, f"write:{nth}:{error}")
    client_confirmed = confirm_some(broker.port, 200)
    assert client_confirmed == 200
    broker.stop()
    broker.environment.pop("FAIL_DISK")
    (tmp_path / "data/run/failpoint-set").unlink(missing_ok=True)
    broker.start()
    try:
        assert drain(broker, "fail") == list(range(1, 201))
    finally:
        broker.stop()


def test_a_sync_that_found_no_space_ends_the_process(tmp_path: Path) -> None:
    broker = broker_with_failpoint(tmp_path, f"sync:3:{errno.ENOSPC}")
    assert broker.server is not None
    publish_until_lost(broker, "fail")
    assert broker.server.wait(60) == 74
    broker.stop()


def confirm_some(port: int, count: int) -> int:
    """Publishes numbered messages, each after the last one's confirm."""
    with Client.open(("127.0.0.1", port)) as client:
        client.call(1, "queue.declare", queue="fail", durable=True)
        client.call(1, "confirm.select")
        for number in range(1, count + 1):
            body = number.to_bytes(8, "big") + bytes(500)
            client.publish(1, "", "fail", body, delivery_mode=2)
            client.expect("basic.ack", 1, delivery_tag=number)
    return count


def test_the_reserve_keeps_a_part_for_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "reserve"
    reserve = Reserve(str(path), 8 << 20)
    reserve.look_after(free=1 << 30, wanted=1 << 20)
    assert path.stat().st_size == 8 << 20
    reserve.give_for_start(free=64 << 20)
    assert path.exists()
    reserve.give_for_start(free=1 << 20)
    assert not path.exists()
    reserve.look_after(free=4 << 20, wanted=1 << 20)
    assert path.stat().st_size == KEPT_FOR_START
    reserve.look_after(free=1 << 30, wanted=1 << 20)
    assert path.stat().st_size == 8 << 20
    Reserve(str(path), 0).give_for_start(free=1 << 30)
    assert not path.exists()


def test_a_reserve_of_another_size_replaces_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "reserve"
    Reserve(str(path), 8 << 20).look_after(free=1 << 30, wanted=0)
    Reserve(str(path), 4 << 20).look_after(free=1 << 30, wanted=0)
    assert path.stat().st_size == 4 << 20


def test_it_refuses_a_reserve_that_is_no_size(make_broker: Make) -> None:
    broker = make_broker(start=False, disk_reserve="-1")
    broker.start(wait=False)
    assert broker.wait() == 78
    assert "is not a size" in broker.log()

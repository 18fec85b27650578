"""What clients see of the disk and the memory alarm."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest

from tests.amqp.raw import (
    HEARTBEAT,
    METHOD,
    Client,
    body,
    decode_method,
    frame,
    header,
    method,
    publish,
)
from tests.appliance import Appliance
from tests.conftest import Make
from tests.disks import SmallDisk

LIMIT = 16 << 20
BEAT = frame(HEARTBEAT, 0, b"")
Ask = Callable[..., tuple[int, Any]]


@pytest.fixture
def low(small_disk: SmallDisk, make_broker: Make) -> Iterator[Appliance]:
    """A broker on a small disk that sets its alarm below 16 MiB of free space."""
    broker = make_broker(data_dir=small_disk.path / "data", disk_free_limit=LIMIT)
    yield broker
    broker.close()


@pytest.fixture
def address(low: Appliance) -> tuple[str, int]:
    return low.host, low.amqp_port


def wait_for(broker: Appliance, text: str, times: int = 1) -> None:
    """Until the log says so."""
    deadline = time.monotonic() + 60
    while broker.log().count(text) < times:
        assert time.monotonic() < deadline, broker.log()
        time.sleep(0.02)


def set_alarm(broker: Appliance, disk: SmallDisk) -> None:
    disk.fill(leave=LIMIT // 2)
    wait_for(broker, "disk alarm:")


def clear_alarm(broker: Appliance, disk: SmallDisk) -> None:
    disk.clear()
    wait_for(broker, "disk alarm cleared")


def is_silent(client: Client, seconds: float = 0.3) -> bool:
    """Whether nothing comes for a while: the one thing that can only be waited for."""
    client.socket.settimeout(seconds)
    try:
        return not client.buffer and not client.socket.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return True
    finally:
        client.socket.settimeout(client.timeout)


def ready(address: tuple[str, int], queue: str) -> int:
    with Client.open(address) as client:
        count: int = client.call(1, "queue.declare", queue=queue, passive=True).message_count
        return count


def test_it_blocks_a_connection_at_its_first_publish_and_goes_on_by_itself(
    low: Appliance, small_disk: SmallDisk, address: tuple[str, int]
) -> None:
    with Client.open(address) as client:
        client.call(1, "queue.declare", queue="q", durable=True)
        client.call(1, "confirm.select")
        client.publish(1, "", "q", b"before", delivery_mode=2)
        client.expect("basic.ack", 1, delivery_tag=1)
        set_alarm(low, small_disk)
        assert is_silent(client), "no notice before it publishes"
        client.publish(1, "", "q", b"during", delivery_mode=2)
        client.expect("connection.blocked", 0, reason="low on disk")
        client.publish(1, "", "q", b"during too", delivery_mode=2)
        assert is_silent(client)
        assert ready(address, "q") == 1
        clear_alarm(low, small_disk)
        client.expect("connection.unblocked", 0)
        acked = client.expect("basic.ack", 1)
        while acked.delivery_tag < 3:
            acked = client.expect("basic.ack", 1)
        assert ready(address, "q") == 3


def test_it_tells_only_clients_that_announced_it(
    low: Appliance, small_disk: SmallDisk, address: tuple[str, int]
) -> None:
    set_alarm(low, small_disk)
    with Client.open(address, client_properties={"product": "old"}) as client:
        client.call(1, "queue.declare", queue="q")
        client.call(1, "confirm.select")
        client.publish(1, "", "q", b"m")
        assert is_silent(client)
        clear_alarm(low, small_disk)
        client.expect("basic.ack", 1)


def test_it_never_blocks_a_connection_that_only_consumes(
    low: Appliance, small_disk: SmallDisk, address: tuple[str, int]
) -> None:
    with Client.open(address) as client:
        client.call(1, "queue.declare", queue="q", durable=True)
        client.call(1, "confirm.select")
        for _ in range(20):
            client.publish(1, "", "q", bytes(1000), delivery_mode=2)
        while client.expect("basic.ack", 1).delivery_tag < 20:
            pass
    set_alarm(low, small_disk)
    with Client.open(address) as consumer:
        consumer.call(1, "basic.consume", queue="q", consumer_tag="c")
        for message in consumer.expect_messages(20, 1):
            consumer.send_method(1, "basic.ack", delivery_tag=message.tag)
        # Definitions go on, too.
        consumer.call(1, "queue.declare", queue="another", durable=True)
        consumer.call(1, "basic.qos", prefetch_count=1)
    assert ready(address, "q") == 0


@pytest.mark.parametrize("split", [3, 9, 15, 40, 60])
def test_it_holds_back_a_publish_wherever_its_bytes_are_split(
    low: Appliance, small_disk: SmallDisk, address: tuple[str, int], split: int
) -> None:
    with Client.open(address) as client:
        client.call(1, "queue.declare", queue="q")
        client.call(1, "confirm.select")
        set_alarm(low, small_disk)
        whole = publish(1, "", "q", b"held back") + publish(1, "", "q", b"behind")
        client.send(whole[:split])
        is_silent(client, 0.1)
        client.send(whole[split:])
        client.expect("connection.blocked", 0)
        clear_alarm(low, small_disk)
        client.expect("connection.unblocked", 0)
        while client.expect("basic.ack", 1).delivery_tag < 2:
            pass
        for expected in (b"held back", b"behind"):
            got = client.get(1, "q", no_ack=True)
            assert got is not None and got.body == expected


def test_it_takes_a_message_that_was_begun_before_the_alarm(
    low: Appliance, small_disk: SmallDisk, address: tuple[str, int]
) -> None:
    with Client.open(address) as client:
        client.call(1, "queue.declare", queue="q")
        client.call(1, "confirm.select")
        start = method(1, "basic.publish", exchange="", routing_key="q", mandatory=False,
                       immediate=False)  # fmt: skip
        client.send(start + header(1, 6))
        set_alarm(low, small_disk)
        client.send(body(1, b"half d"))
        client.expect("basic.ack", 1, delivery_tag=1)


def test_the_log_says_when_a_low_disk_becomes_full(
    low: Appliance, small_disk: SmallDisk, address: tuple[str, int]
) -> None:
    full = "disk alarm: the disk is full: what is not written waits in memory and is not confirmed"
    with Client.open(address) as client:
        client.call(1, "queue.declare", queue="q", durable=True)
        client.call(1, "confirm.select")
        message = publish(1, "", "q", bytes(100_000), delivery_mode=2)
        begun = len(method(1, "basic.publish", exchange="", routing_key="q"))
        client.send(message[:begun])
        set_alarm(low, small_disk)
        small_disk.fill()
        assert full not in low.log()
        client.send(message[begun:])
        deadline = time.monotonic() + 60
        while full not in low.log():
            assert time.monotonic() < deadline, low.log()
            small_disk.fill()  # also what the broker's reserve gives back
            time.sleep(0.02)
        clear_alarm(low, small_disk)
        client.expect("basic.ack", 1, delivery_tag=1)
    assert low.log().count(full) == 1


def test_it_does_not_time_out_a_blocked_connection_and_keeps_sending_heartbeats(
    low: Appliance, small_disk: SmallDisk, address: tuple[str, int]
) -> None:
    set_alarm(low, small_disk)
    with Client.open(address, heartbeat=1) as client:
        client.keep_heartbeats = True
        client.call(1, "queue.declare", queue="q")
        client.call(1, "confirm.select")
        client.publish(1, "", "q", b"m")
        beats = 0
        # Silent for more than three intervals, seven half intervals of the broker's.
        while beats < 7:
            got = client.read_frame()
            if got.type == HEARTBEAT:
                beats += 1
            else:
                assert decode_method(got.payload, 0).name == "connection.blocked"
        clear_alarm(low, small_disk)
        seen: list[str] = []
        while "basic.ack" not in seen:
            got = client.read_frame()
            if got.type == METHOD:
                seen.append(decode_method(got.payload, got.channel).name)
            else:
                client.send(BEAT)
        assert seen == ["connection.unblocked", "basic.ack"]


def test_it_closes_a_blocked_connection_at_shutdown_and_for_an_operator(
    low: Appliance, small_disk: SmallDisk, address: tuple[str, int]
) -> None:
    set_alarm(low, small_disk)
    with Client.open(address) as client:
        client.publish(1, "", "nowhere", b"m")
        client.expect("connection.blocked", 0)
        assert low.process is not None
        low.process.terminate()
        client.expect("connection.close", 0, reply_code=320)
        client.send_method(0, "connection.close-ok")
        assert low.wait() == 0


def test_pika_is_told_and_its_publishes_go_on(
    low: Appliance, small_disk: SmallDisk, address: tuple[str, int]
) -> None:
    told: list[str] = []
    connection = pika.BlockingConnection(pika.URLParameters(low.amqp_url))
    connection.add_on_connection_blocked_callback(lambda _, frame: told.append("blocked"))
    connection.add_on_connection_unblocked_callback(lambda _, frame: told.append("unblocked"))
    channel = connection.channel()
    channel.queue_declare("pika", durable=True)
    set_alarm(low, small_disk)
    channel.basic_publish("", "pika", b"m")
    deadline = time.monotonic() + 60
    while told != ["blocked"]:
        assert time.monotonic() < deadline
        connection.process_data_events(0.1)
    clear_alarm(low, small_disk)
    while told != ["blocked", "unblocked"]:
        assert time.monotonic() < deadline
        connection.process_data_events(0.1)
    connection.close()
    assert ready(address, "pika") == 1


@pytest.fixture
def asked(make_leveret: Make, small_disk: SmallDisk) -> Iterator[tuple[Appliance, Ask]]:
    """An appliance on the small disk, and its HTTP API."""
    appliance = make_leveret(data_dir=small_disk.path / "data", disk_free_limit=LIMIT)
    yield appliance, _asker(appliance)
    appliance.close()


def _asker(appliance: Appliance) -> Ask:

    def ask(path: str, data: object = None) -> tuple[int, Any]:
        request = urllib.request.Request(
            appliance.http_url + path,
            None if data is None else json.dumps(data).encode(),
            {"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q=", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    return ask


def test_the_http_api_shows_the_alarm_and_refuses_to_publish(
    asked: tuple[Appliance, Ask], small_disk: SmallDisk
) -> None:
    appliance, ask = asked
    node = ask("/api/nodes")[1][0]
    assert node["disk_free_alarm"] is False
    assert node["disk_free_limit"] == LIMIT
    assert ask("/api/health/checks/alarms") == (200, {"status": "ok"})
    set_alarm(appliance, small_disk)
    node = ask("/api/nodes")[1][0]
    assert node["disk_free_alarm"] is True
    assert node["disk_free"] < LIMIT
    for check in ("alarms", "local-alarms"):
        status, answer = ask(f"/api/health/checks/{check}")
        assert status == 503
        alarms = answer["alarms"]
        assert alarms == [{"node": node["name"], "resource": "disk space"}]
    message = {"routing_key": "q", "payload": "m", "payload_encoding": "string", "properties": {}}
    status, answer = ask("/api/exchanges/%2F/amq.default/publish", message)
    assert status == 503
    assert "low on disk" in answer["reason"]
    overview = ask("/api/overview")[1]
    assert [row["name"] for row in overview["alarms"]] == ["disk"]
    with Client.open((appliance.host, appliance.amqp_port)) as client:
        states = [row["state"] for row in ask("/api/connections")[1]]
        assert states == ["blocking"]
        client.publish(1, "", "nowhere", b"m")
        client.expect("connection.blocked", 0)
        states = [row["state"] for row in ask("/api/connections")[1]]
        assert states == ["blocked"]
        page = urllib.request.urlopen(f"http://127.0.0.1:{appliance.metrics_port}/metrics").read()
        assert b"rabbitmq_alarms_free_disk_space_watermark 1" in page
        assert b"rabbitmq_connections_blocked 1" in page
    clear_alarm(appliance, small_disk)
    assert ask("/api/health/checks/alarms") == (200, {"status": "ok"})


def send_until_shut(client: Client, data: bytes) -> None:
    with contextlib.suppress(OSError):
        client.send(data)


def test_the_memory_alarm_fires_and_clears_at_128_mib(make_broker: Make) -> None:
    broker = make_broker(memory_high_watermark="128MiB", body_in_memory="1GiB")
    address = broker.host, broker.amqp_port
    with Client.open(address) as publisher:
        publisher.call(1, "queue.declare", queue="q")
        publisher.call(1, "confirm.select")
        hogs = [Client.open(address) for _ in range(3)]
        threads = []
        for hog in hogs:
            start = method(1, "basic.publish", exchange="", routing_key="q", mandatory=False,
                           immediate=False)  # fmt: skip
            # A message that never ends stays in memory, where it may be so large.
            data = start + header(1, 64 << 20) + body(1, bytes(32 << 20))
            # The alarm may come before the last of them is read, and then it is not.
            threads.append(threading.Thread(target=send_until_shut, args=(hog, data)))
            threads[-1].start()
        wait_for(broker, "memory alarm: the broker uses")
        publisher.publish(1, "", "q", b"m")
        publisher.expect("connection.blocked", 0, reason="low on memory")
        for hog, thread in zip(hogs, threads, strict=True):
            hog.socket.shutdown(socket.SHUT_RDWR)
            thread.join()
            hog.cut()
        wait_for(broker, "memory alarm cleared")
        publisher.expect("connection.unblocked", 0)
        publisher.expect("basic.ack", 1)


@pytest.mark.parametrize("value", ["much", "0", "1.5", "-1", "10"])
def test_it_refuses_a_watermark_that_is_none(make_broker: Make, value: str) -> None:
    broker = make_broker(start=False, memory_high_watermark=value)
    broker.start(wait=False)
    assert broker.wait() == 78
    assert "a share of the memory such as 0.6" in broker.log()


def test_it_refuses_a_free_limit_that_is_none(make_broker: Make) -> None:
    broker = make_broker(start=False, disk_free_limit="half")
    broker.start(wait=False)
    assert broker.wait() == 78
    assert "'half' is not a size" in broker.log()

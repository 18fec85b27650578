"""Bodies so large that the loop copies none: in the records of streams, of delayed messages, and of
queues that get one from there."""

from __future__ import annotations

import random
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.amqp import raw
from tests.amqp.raw import Client
from tests.amqp.test_large_bodies import eventually, nameless
from tests.appliance import Appliance
from tests.conftest import Make
from tests.disks import SmallDisk

LARGE = (4 << 20) + 70_001
STREAM = {"x-queue-type": "stream"}
GUEST = ("guest", "guest")


def made(seed: int, size: int = LARGE) -> bytes:
    return random.Random(seed).randbytes(size)


def opened(broker: Appliance) -> Client:
    client = Client.open((broker.host, broker.amqp_port), timeout=60)
    client.call(1, "confirm.select")
    return client


def read(client: Client, stream: str, count: int, first: Any = "first") -> list[tuple[int, bytes]]:
    """Offsets and bodies of the next messages of a stream, with a connection of its own."""
    found = []
    with Client.open(client.socket.getpeername()[:2], timeout=60) as reader:
        reader.call(1, "basic.qos", prefetch_count=1)
        reader.call(1, "basic.consume", queue=stream, arguments={"x-stream-offset": first})
        for _ in range(count):
            message = reader.expect_message()
            found.append((message.properties["headers"]["x-stream-offset"], message.body))
            reader.send_method(1, "basic.ack", delivery_tag=message.tag)
    return found


def segments(broker: Appliance, size: int) -> list[Path]:
    """Segments of at least `size` bytes."""
    found = broker.data_dir.rglob("msgs.*")
    return [file for file in found if file.stat().st_size >= size]


def damage(broker: Appliance) -> None:
    """Changes a byte in the middle of each large body."""
    for file in segments(broker, LARGE):
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)


def declare_delaying(client: Client, name: str, *queues: str) -> None:
    client.call(
        1,
        "exchange.declare",
        exchange=name,
        type="x-delayed-message",
        durable=True,
        arguments={"x-delayed-type": "fanout"},
    )
    for queue in queues or (name,):
        client.call(1, "queue.declare", queue=queue, durable=True)
        client.call(1, "queue.bind", queue=queue, exchange=name)


def test_a_stream_gives_them_whole_and_in_order(client: Client, name: str) -> None:
    client.call(1, "queue.declare", queue=name, durable=True, arguments=STREAM)
    client.call(1, "confirm.select")
    bodies = [b"first", made(1), b"third", made(4), made(5), b"sixth"]
    for body in bodies:
        client.publish(1, "", name, body, headers={"kind": len(body)})
    client.expect_confirms(1, len(bodies))
    assert read(client, name, len(bodies)) == list(enumerate(bodies))
    assert read(client, name, 2, first=3) == list(enumerate(bodies))[3:5]
    client.call(1, "queue.delete", queue=name)


def test_a_reader_that_waits_gets_what_comes(client: Client, other: Client, name: str) -> None:
    client.call(1, "queue.declare", queue=name, durable=True, arguments=STREAM)
    other.call(1, "basic.qos", prefetch_count=10)
    other.call(1, "basic.consume", queue=name, arguments={"x-stream-offset": "next"})
    for body in (made(1), b"small", made(2)):
        client.publish(1, "", name, body)
    assert [message.body for message in other.expect_messages(3, 1)] == [
        made(1),
        b"small",
        made(2),
    ]
    client.call(1, "queue.delete", queue=name)


def test_long_headers_stay_with_their_large_body(client: Client, other: Client, name: str) -> None:
    client.call(1, "queue.declare", queue=name, durable=True, arguments=STREAM)
    client.call(1, "confirm.select")
    headers = {f"h{number}": "x" * 1000 for number in range(120)}
    for number in range(3):
        client.publish(1, "", name, made(number), headers=headers)
    client.expect_confirms(1, 3)
    other.call(1, "basic.qos", prefetch_count=1)
    other.call(1, "basic.consume", queue=name, arguments={"x-stream-offset": "first"})
    for number in range(3):
        message = other.expect_message()
        assert message.body == made(number)
        assert message.properties["headers"] == headers | {"x-stream-offset": number}
        other.send_method(1, "basic.ack", delivery_tag=message.tag)
    client.call(1, "queue.delete", queue=name)


def test_two_streams_and_two_queues_share_one(client: Client, other: Client, name: str) -> None:
    client.call(1, "exchange.declare", exchange=name, type="fanout")
    queues = [f"{name}-{number}" for number in range(4)]
    for number, queue in enumerate(queues):
        arguments = STREAM if number % 2 else {}
        client.call(1, "queue.declare", queue=queue, durable=True, arguments=arguments)
        client.call(1, "queue.bind", queue=queue, exchange=name)
    client.call(1, "confirm.select")
    client.publish(1, name, "", made(7), delivery_mode=2)
    client.expect_confirms(1, 1)
    for number, queue in enumerate(queues):
        if number % 2:
            assert read(client, queue, 1) == [(0, made(7))]
        else:
            got = other.get(1, queue, no_ack=True)
            assert got is not None
            assert got.body == made(7)
        client.call(1, "queue.delete", queue=queue)
    client.call(1, "exchange.delete", exchange=name)


def test_a_delayed_one_comes_back_and_is_shown(shared_leveret: Appliance, name: str) -> None:
    with opened(shared_leveret) as client:
        declare_delaying(client, name)
        client.publish(1, name, "", made(3), delivery_mode=2, headers={"x-delay": 20})
        client.publish(1, name, "", b"small", delivery_mode=2, headers={"x-delay": 21})
        client.expect_confirms(1, 2)
        client.call(1, "basic.consume", queue=name, consumer_tag="c")
        first, second = client.expect_messages(2, 1)
        assert (first.body, first.redelivered, second.body) == (made(3), False, b"small")
        client.call(1, "channel.close", reply_code=200, reply_text="")
        client.call(1, "channel.open")
        again = client.get(1, name)
        assert again is not None
        assert (again.body, again.redelivered) == (made(3), True)
        client.send_method(1, "basic.reject", delivery_tag=again.tag, requeue=True)
        client.fence(1)
        url = f"{shared_leveret.http_url}/api/queues/%2F/{name}/get"
        wanted = {"count": 2, "ackmode": "ack_requeue_true", "encoding": "base64", "truncate": 9}
        rows = httpx.post(url, auth=GUEST, json=wanted, timeout=60).json()
        assert [row["payload_bytes"] for row in rows] == [LARGE, 5]
        assert client.call(1, "queue.purge", queue=name).message_count == 2
        client.call(1, "queue.delete", queue=name)
        client.call(1, "exchange.delete", exchange=name)


@pytest.mark.parametrize("targets", [1, 2])
def test_delayed_ones_outlive_the_broker(make_broker: Make, kill: bool, targets: int) -> None:
    broker = make_broker()
    queues = [f"q{number}" for number in range(targets)]
    with opened(broker) as client:
        declare_delaying(client, "d", *queues)
        for number in range(3):
            headers = {"x-delay": 1 if number == 0 else 3_000}
            body = b"small" if number == 1 else made(number)
            client.publish(1, "d", "", body, delivery_mode=2, headers=headers)
        client.expect_confirms(1, 3)
        client.call(1, "basic.consume", queue="q0", consumer_tag="c")
        # The first one is written to its queues before the broker ends.
        assert client.expect_message().body == made(0)
    broker.kill() if kill else broker.stop()
    broker.start()
    with opened(broker) as client:
        for queue in queues:
            client.call(1, "basic.consume", queue=queue, consumer_tag=queue)
            found = [message.body for message in client.expect_messages(3, 1)]
            # One that is delivered again after a kill may come twice, which is marked.
            assert found == [made(0), b"small", made(2)]
    broker.close()


def test_a_delayed_one_that_is_offered_again_is_still_itself(make_broker: Make) -> None:
    broker = make_broker()
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    with opened(broker) as client:
        client.call(1, "queue.declare", queue="full", durable=True, arguments=full)
        declare_delaying(client, "d", "free", "other")
        client.call(1, "queue.bind", queue="full", exchange="d")
        client.publish(1, "", "full", b"first", delivery_mode=2)
        named = {"message_id": "m" * 200, "type": "t" * 200}
        client.publish(1, "d", "", made(1), delivery_mode=2, headers={"x-delay": 10}, **named)
        client.expect_confirms(1, 2)
        for queue in ("free", "other"):
            # These have it, in one shared body, and the full one is asked again and again.
            client.call(1, "basic.consume", queue=queue, consumer_tag=queue, no_ack=True)
            message = client.expect_message()
            assert message.body == made(1)
            assert named.items() <= message.properties.items()
        client.call(1, "queue.purge", queue="full")
        client.call(1, "basic.consume", queue="full", consumer_tag="full", no_ack=True)
        message = client.expect_message()
        assert message.body == made(1)
        assert named.items() <= message.properties.items()
    broker.close()


def test_a_stream_of_them_outlives_the_broker(make_broker: Make, kill: bool) -> None:
    broker = make_broker()
    bodies = [made(0), b"small", made(2), made(3)]
    with opened(broker) as client:
        client.call(1, "queue.declare", queue="s", durable=True, arguments=STREAM)
        for body in bodies:
            client.publish(1, "", "s", body, delivery_mode=2)
        client.expect_confirms(1, 4)
    broker.kill() if kill else broker.stop()
    broker.start()
    with opened(broker) as client:
        client.publish(1, "", "s", b"after")
        client.expect_confirms(1, 1)
        assert read(client, "s", 5) == list(enumerate([*bodies, b"after"]))
    broker.close()


def test_a_damaged_one_in_a_stream_is_passed_over(make_broker: Make) -> None:
    broker = make_broker()
    with opened(broker) as client:
        client.call(1, "queue.declare", queue="s", durable=True, arguments=STREAM)
        for body in (b"before", made(1), b"behind"):
            client.publish(1, "", "s", body)
        client.expect_confirms(1, 3)
    with opened(broker) as client:
        damage(broker)
        assert read(client, "s", 2) == [(0, b"before"), (2, b"behind")]
    (kept,) = (broker.data_dir / "quarantine").glob("*.bin")
    assert kept.stat().st_size > LARGE
    broker.close()


def test_a_damaged_one_in_a_queue_is_passed_over(make_broker: Make) -> None:
    broker = make_broker()
    with opened(broker) as client:
        declare_delaying(client, "d", "q")
        for number, body in enumerate((b"before", made(1), b"behind")):
            headers = {"x-delay": 10 + number}
            client.publish(1, "d", "", body, delivery_mode=2, headers=headers)
        client.expect_confirms(1, 3)
        while client.call(1, "queue.declare", queue="q", passive=True).message_count < 3:
            client.fence(1)
    broker.stop()
    damage(broker)
    broker.start()
    with opened(broker) as client:
        client.call(1, "basic.consume", queue="q", consumer_tag="c", no_ack=True)
        assert [message.body for message in client.expect_messages(2, 1)] == [b"before", b"behind"]
    assert list((broker.data_dir / "quarantine").glob("*.bin"))
    broker.close()


def test_one_that_finds_the_disk_full_is_confirmed_when_there_is_space(
    make_broker: Make, small_disk: SmallDisk
) -> None:
    broker = make_broker(data_dir=small_disk.path / "data", disk_free_limit="4096")
    with opened(broker) as client:
        for stream in ("s0", "s1", "s2"):
            client.call(1, "queue.declare", queue=stream, durable=True, arguments=STREAM)
            client.call(1, "queue.bind", queue=stream, exchange="amq.fanout")
        client.publish(1, "amq.fanout", "", b"before")
        client.expect_confirms(1, 1)
        client.send(
            raw.method(1, "basic.publish", exchange="amq.fanout", routing_key="")
            + raw.header(1, LARGE)
        )
        client.send(raw.body(1, made(1)[:-1]))
        client.call(2, "channel.open")
        # Its file without a name has all but the last block, so that it is read back; when the file
        # goes, there is space for one of the three records at most.
        eventually(lambda: sum(nameless(broker)) >= LARGE - (128 << 10))
        small_disk.fill(leave=1 << 20)
        client.send(raw.body(1, made(1)[-1:]))
        client.send_method(2, "queue.declare", queue="s0", passive=True)
        awaited = ["queue.declare-ok", "basic.ack"]
        while awaited:
            got = client.read_method()
            # The alarm may be seen meanwhile.
            if got.name not in ("connection.blocked", "connection.unblocked"):
                assert got.name == awaited.pop(0)
            if got.name == "queue.declare-ok":
                small_disk.clear()
        assert got.delivery_tag == 2
        for stream in ("s0", "s1", "s2"):
            assert read(client, stream, 2) == [(0, b"before"), (1, made(1))]
    broker.close()


def test_a_message_moves_to_another_virtual_host_whole(
    shared_leveret: Appliance, name: str
) -> None:
    with httpx.Client(auth=GUEST, timeout=60, base_url=shared_leveret.http_url) as api:
        assert api.put(f"/api/vhosts/{name}").status_code == 201
        for vhost in ("%2F", name):
            path = f"/api/queues/{vhost}/{name}"
            assert api.put(path, json={"durable": True}).status_code == 201
        with opened(shared_leveret) as client:
            client.publish(1, "", name, made(9), delivery_mode=2)
            client.expect_confirms(1, 1)
            wanted = {"target": name, "target_vhost": name}
            assert api.post(f"/api/queues/%2F/{name}/move", json=wanted).status_code == 201
            address = client.socket.getpeername()[:2]
            with Client.open(address, virtual_host=name, timeout=60) as there:
                there.call(1, "basic.consume", queue=name, consumer_tag="c", no_ack=True)
                assert there.expect_message().body == made(9)
            client.call(1, "queue.delete", queue=name)
        assert api.delete(f"/api/vhosts/{name}").status_code == 204


def test_a_stream_is_replayed_and_shown_with_them(shared_leveret: Appliance, name: str) -> None:
    target = f"{name}-again"
    with (
        httpx.Client(auth=GUEST, timeout=60, base_url=shared_leveret.http_url) as api,
        opened(shared_leveret) as client,
    ):
        client.call(1, "queue.declare", queue=name, durable=True, arguments=STREAM)
        client.call(1, "queue.declare", queue=target, durable=True)
        client.publish(1, "", name, made(2), delivery_mode=2)
        client.expect_confirms(1, 1)
        url = f"/api/queues/%2F/{name}"
        replayed = api.post(f"/api/streams/%2F/{name}/replay", json={"target": target})
        assert replayed.status_code == 201
        client.call(1, "basic.consume", queue=target, consumer_tag="c", no_ack=True)
        assert client.expect_message().body == made(2)
        wanted = {"count": 1, "encoding": "auto", "offset": "first"}
        refused = api.post(f"{url}/stream", json=wanted)
        assert refused.status_code == 400
        assert f"a body of {LARGE} bytes" in refused.json()["reason"]
        shown = api.post(f"{url}/stream", json={**wanted, "truncate": 5})
        assert [row["payload_bytes"] for row in shown.json()] == [LARGE]
        client.call(1, "queue.delete", queue=name)
        client.call(1, "queue.delete", queue=target)


def test_the_end_of_the_broker_waits_for_one_that_is_not_written(make_broker: Make) -> None:
    broker = make_broker()
    with opened(broker) as client:
        client.call(1, "queue.declare", queue="s", durable=True, arguments=STREAM)
        client.publish(1, "", "s", made(1), delivery_mode=2)
        client.call(2, "channel.open")
        while client.call(2, "queue.declare", queue="s", passive=True).message_count < 1:
            client.fence(2)
        broker.signal(signal.SIGTERM)
    assert broker.wait() == 0
    broker.start()
    with opened(broker) as client:
        assert read(client, "s", 1) == [(0, made(1))]
    broker.close()

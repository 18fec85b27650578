"""A message to more queues than get it in one turn of the loop: each gets it once, and what else
holds for a publish holds for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker.kernel.steps import Pause
from broker.schema.message_history import HISTORY
from broker.vhosts.slices import Slices
from management.history_rows import record
from tests import inside
from tests.amqp import raw
from tests.amqp.raw import Client
from tests.appliance import Appliance
from tests.control.test_real_broker import control

QUEUES = 1100
"""So many that their search takes several steps, too."""

SECONDS_MAX = 120.0
"""That an answer may take: to declare and delete so many is work for a busy disk."""


@pytest.fixture
def client(amqp_address: tuple[str, int]) -> Iterator[Client]:
    """An open connection with channel 1."""
    with Client.open(amqp_address, timeout=SECONDS_MAX) as client:
        yield client


@pytest.fixture
def other(amqp_address: tuple[str, int]) -> Iterator[Client]:
    """Another open connection with channel 1."""
    with Client.open(amqp_address, timeout=SECONDS_MAX) as client:
        yield client


def bound(
    client: Client, name: str, *, kind: str = "fanout", durable: bool = False, **arguments: Any
) -> list[str]:
    """An exchange of this name with new queues; the first one has the arguments."""
    client.call(1, "exchange.declare", exchange=name, type=kind, durable=durable)
    queues = [f"{name}-{number}" for number in range(QUEUES)]
    wanted = {"x-match": "any", "colour": "red"} if kind == "headers" else {}
    for at in range(0, QUEUES, 500):
        data = b""
        for queue in queues[at : at + 500]:
            data += raw.method(
                1, "queue.declare", queue=queue, durable=durable, exclusive=not durable,
                arguments=arguments, nowait=True,
            )  # fmt: skip
            data += raw.method(
                1, "queue.bind", queue=queue, exchange=name, routing_key="k", arguments=wanted,
                nowait=True,
            )  # fmt: skip
            arguments = {}
        client.send(data)
    client.fence(1)
    return queues


def delete(client: Client, queues: list[str]) -> None:
    """Asks for the end of these queues, without an answer."""
    deleted = [raw.method(1, "queue.delete", queue=each, nowait=True) for each in queues]
    client.send(b"".join(deleted))


def bodies(client: Client, queue: str) -> list[bytes]:
    """What is in a queue, taken."""
    found = []
    while (message := client.get(1, queue, no_ack=True)) is not None:
        found.append(message.body)
    return found


def counts(client: Client, queues: list[str]) -> list[int]:
    """How many messages are in each."""
    found = []
    for at in range(0, len(queues), 500):
        part = queues[at : at + 500]
        client.send(
            b"".join(raw.method(1, "queue.declare", queue=each, passive=True) for each in part)
        )
        found += [client.expect("queue.declare-ok", 1).message_count for _ in part]
    return found


def stored(broker: Appliance) -> int:
    """Bytes of all files with shared bodies."""
    return sum(path.stat().st_size for path in broker.data_dir.rglob("*.bdy"))


@pytest.mark.parametrize("kind", ["fanout", "direct", "topic", "headers"])
def test_each_queue_gets_every_message_in_order(client: Client, name: str, kind: str) -> None:
    queues = bound(client, name, kind=kind)
    client.call(1, "confirm.select")
    headers = {"headers": {"colour": "red"}} if kind == "headers" else {}
    client.send(b"".join(raw.publish(1, name, "k", b"%d" % n, **headers) for n in range(5)))
    assert set(client.expect_confirms(1, 5).values()) == {"basic.ack"}
    assert counts(client, queues) == [5] * QUEUES
    for queue in queues[::499]:
        assert bodies(client, queue) == [b"0", b"1", b"2", b"3", b"4"]


def test_what_its_client_sends_behind_it_comes_behind_it(client: Client, name: str) -> None:
    queues = bound(client, name)
    client.send(
        raw.publish(1, name, "", b"first")
        + raw.publish(1, "", queues[-1], b"second")
        + raw.method(1, "queue.declare", queue=queues[-1], passive=True)
    )
    assert client.expect("queue.declare-ok", 1).message_count == 2
    assert bodies(client, queues[-1]) == [b"first", b"second"]


def test_others_are_served_meanwhile(client: Client, other: Client, name: str) -> None:
    queues = bound(client, name)
    other.call(1, "queue.declare", queue="", exclusive=True)
    other.call(1, "confirm.select")
    client.publish(1, name, "", b"x")
    client.send(raw.method(1, "queue.declare", queue=queues[-1], passive=True))
    rounds = 0
    client.socket.setblocking(False)
    try:
        while True:
            try:
                client.buffer += client.socket.recv(1 << 16)
                break
            except BlockingIOError:
                other.publish(1, "", "", b"mine")
                rounds += 1
                other.expect_confirms(1, rounds, rounds)
    finally:
        client.socket.setblocking(True)
    assert client.expect("queue.declare-ok", 1).message_count == 1
    assert rounds > 3


def test_it_reaches_all_though_its_client_leaves(
    client: Client, amqp_address: tuple[str, int], name: str
) -> None:
    queues = bound(client, name)
    with Client.open(amqp_address, timeout=SECONDS_MAX) as leaving:
        leaving.publish(1, name, "", b"x")
        leaving.reset()
    deadline = time.monotonic() + SECONDS_MAX
    while counts(client, queues[-1:]) == [0]:
        assert time.monotonic() < deadline
    assert bodies(client, queues[-1]) == [b"x"]
    assert counts(client, queues[:-1]) == [1] * (QUEUES - 1)


def test_queues_that_are_deleted_meanwhile_do_not_come_back(
    client: Client, other: Client, name: str
) -> None:
    queues = bound(client, name, durable=True)
    other.send(b"".join(raw.publish(1, name, "", b"x", delivery_mode=2) for _ in range(3)))
    deleted = queues[::2]
    delete(client, deleted)
    client.fence(1)
    other.fence(1)
    for each in deleted[:3]:
        client.call(1, "queue.declare", queue=each, durable=True)
    assert counts(client, deleted[:3]) == [0, 0, 0]
    assert counts(client, queues[1::2]) == [3] * (QUEUES // 2)
    delete(client, queues)
    client.fence(1)


def test_a_large_body_is_there_for_each_after_a_restart(
    make_broker: Callable[..., Appliance], name: str, kill: bool
) -> None:
    broker = make_broker()
    large = bytes(range(256)) * 100
    with Client.open((broker.host, broker.amqp_port), timeout=SECONDS_MAX) as client:
        queues = bound(client, name, durable=True)
        client.call(1, "confirm.select")
        for number in range(2):
            client.publish(1, name, "k", large + b"%d" % number, delivery_mode=2)
        client.expect_confirms(1, 2)
    broker.end(kill=kill)
    assert stored(broker) < 3 * len(large)  # once, not once for each queue
    broker.start()
    with Client.open((broker.host, broker.amqp_port), timeout=SECONDS_MAX) as client:
        assert counts(client, queues) == [2] * QUEUES
        assert bodies(client, queues[0]) == [large + b"0", large + b"1"]
        for queue in queues:
            client.send(raw.method(1, "queue.purge", queue=queue, nowait=True))
        client.fence(1)
        deadline = time.monotonic() + SECONDS_MAX
        while stored(broker):
            assert time.monotonic() < deadline, "a reference to the body is left"
            time.sleep(0.1)


def test_its_confirm_waits_for_the_ack_of_each_consumer(client: Client, name: str) -> None:
    queues = bound(client, name, **{"x-confirm-on": "ack"})
    client.call(1, "confirm.select")
    client.call(1, "basic.consume", queue=queues[0])
    client.send(raw.publish(1, name, "k", b"x") + raw.publish(1, name, "k", b"y"))
    first, second = client.expect_messages(2, 1)
    client.call(1, "queue.declare", queue=queues[-1], passive=True)  # and nothing was confirmed
    client.send_method(1, "basic.ack", delivery_tag=first.tag)
    assert client.expect_confirms(1, 1) == {1: "basic.ack"}
    client.send_method(1, "basic.reject", delivery_tag=second.tag, requeue=False)
    assert client.expect_confirms(1, 2, 2) == {2: "basic.nack"}


def test_a_queue_that_is_full_makes_it_a_nack(client: Client, name: str) -> None:
    queues = bound(client, name, **{"x-max-length": 1, "x-overflow": "reject-publish"})
    client.call(1, "confirm.select")
    client.send(raw.publish(1, name, "k", b"x") + raw.publish(1, name, "k", b"y"))
    assert client.expect_confirms(1, 2) == {1: "basic.ack", 2: "basic.nack"}
    assert counts(client, queues) == [1] + [2] * (QUEUES - 1)


def test_a_transaction_publishes_it_at_its_commit(client: Client, name: str) -> None:
    queues = bound(client, name)
    client.call(1, "tx.select")
    client.send(raw.publish(1, name, "k", b"x") + raw.publish(1, name, "k", b"y"))
    assert set(counts(client, queues)) == {0}
    client.call(1, "tx.commit")
    assert counts(client, queues) == [2] * QUEUES
    assert bodies(client, queues[-1]) == [b"x", b"y"]


def test_other_keys_of_a_message_count_too(client: Client, name: str) -> None:
    queues = bound(client, name, kind="direct")
    client.call(1, "queue.declare", queue=f"{name}-cc", exclusive=True)
    client.call(1, "queue.bind", queue=f"{name}-cc", exchange=name, routing_key="cc")
    client.publish(1, name, "k", b"x", headers={"CC": ["cc"], "BCC": ["bcc"]})
    client.fence(1)
    assert counts(client, [*queues, f"{name}-cc"]) == [1] * (QUEUES + 1)
    message = client.get(1, f"{name}-cc", no_ack=True)
    assert message is not None
    assert message.properties["headers"] == {"CC": ["cc"]}


def test_it_comes_back_where_no_queue_is_left(client: Client, other: Client, name: str) -> None:
    """The bindings are there, and lead to queues that wait to be deleted."""
    queues = bound(client, name, kind="headers")
    delete(client, queues)
    client.fence(1)
    other.send(raw.publish(1, name, "k", b"x", headers={"colour": "red"}, mandatory=True))
    assert other.expect_message("basic.return", 1).body == b"x"


async def test_its_history_has_it_with_its_queues(broker: Appliance, name: str) -> None:
    async with control(broker) as asking:
        await asking.call(
            "policy.put", vhost="/", name="keep", pattern=".*", definition={"history": "full"}
        )
        with Client.open((broker.host, broker.amqp_port), timeout=SECONDS_MAX) as client:
            queues = bound(client, name)
            client.call(1, "confirm.select")
            client.publish(1, name, "k", b"x")
            client.expect("basic.ack", 1)
            rows = await asking.call(
                "stream.read", vhost="/", name=HISTORY, offset="first", count=10
            )
    (row,) = map(record, rows)
    assert (row["exchange"], row["payload"]) == (name, b"x")
    assert set(row["queues"]) <= set(queues)
    assert row["queues"]


async def test_it_waits_for_the_disk_where_unwritten_messages_fill_their_memory() -> None:
    """One message of 100 KB of headers to 100,000 queues would be 10 GB."""
    limit = 1 << 20
    with inside.in_memory() as directory:
        async with inside.running(directory, tail_memory=limit) as broker:
            client = await inside.connect(broker, "guest")
            declared = [
                raw.method(1, "queue.declare", queue=f"w{n}", durable=True, nowait=True)
                + raw.method(1, "queue.bind", queue=f"w{n}", exchange="amq.fanout", nowait=True)
                for n in range(QUEUES)
            ]
            for at in range(0, QUEUES, 100):
                client.feed(b"".join(declared[at : at + 100]))
                await client.fence()
            headers = {"long": "x" * 10_000}
            client.feed(raw.publish(1, "amq.fanout", "", b"", headers=headers, delivery_mode=2))
            most = 0

            def is_done() -> bool:
                nonlocal most
                most = max(most, broker.persister.tail_bytes)
                return client.session.long_work is None

            assert not is_done()
            await inside.until(is_done)
            assert most > limit  # all of it is fifteen times as much
            assert most < 3 * limit
            vhost = broker.vhosts["/"]
            assert {vhost.queues[f"w{n}"].messages_ready for n in range(QUEUES)} == {1}


def test_work_that_waits_is_not_over_and_lets_other_work_pass() -> None:
    timers: list[tuple[float, Callable[[], None]]] = []
    slices = Slices(lambda seconds, callback: timers.append((seconds, callback)))
    slices.start()
    done: list[str] = []

    def waiting() -> Iterator[object]:
        yield Pause(0.5)
        done.append("what waited")

    def long() -> Iterator[object]:
        until = time.perf_counter() + 0.01
        while time.perf_counter() < until:
            yield
        done.append("the other")

    slices.begin(waiting())
    slices.begin(long())
    slices.over(lambda: done.append("all"))
    assert not slices.is_over()
    (pause, resume), timers[:] = timers[0], timers[1:]
    assert pause == 0.5
    while timers:
        timers.pop()[1]()
    assert done == ["the other"] and not slices.is_over()
    resume()
    timers.pop()[1]()
    assert done == ["the other", "what waited", "all"] and slices.is_over()

"""What one client does with very many deliveries takes no turn of the loop above 10 ms of CPU. It
keeps its order and is carried out whole."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.amqp.raw import Client, method, publish
from tests.appliance import Appliance
from tests.turns import TurnMeter

COUNT = 600_000
TAG = "t"
LONGEST_MS = 10


@pytest.fixture(scope="module")
def metered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Appliance, TurnMeter]]:
    broker = Appliance("broker", tmp_path_factory.mktemp("turns"))
    meter = TurnMeter(broker)
    broker.start()
    yield broker, meter
    broker.close()


@pytest.fixture
def broker(metered: tuple[Appliance, TurnMeter]) -> Appliance:
    return metered[0]


@pytest.fixture
def meter(metered: tuple[Appliance, TurnMeter]) -> TurnMeter:
    return metered[1]


def opened(broker: Appliance, channels: tuple[int, ...] = (1, 2)) -> Client:
    return Client.open((broker.host, broker.amqp_port), channels=channels, timeout=120)


def fill(client: Client, queue: str, count: int, first: int = 0) -> None:
    """Publishes messages of 8 octets that are numbered."""
    frames = bytearray(publish(1, "", queue, bytes(8)))
    for number in range(first, first + count, 1000):
        parts = []
        for each in range(number, min(number + 1000, first + count)):
            frames[-9:-1] = struct.pack(">Q", each)
            parts.append(bytes(frames))
        client.send(b"".join(parts))
    client.fence(1)


def deliveries(client: Client, queue: str, count: int) -> list[int]:
    """The next so many deliveries of one consumer called TAG: their numbers."""
    stride = (8 + 4 + 1 + len(TAG) + 9 + 1 + 1 + len(queue)) + (8 + 14) + (8 + 8)
    data, client.buffer = bytearray(client.buffer), b""
    while len(data) < count * stride:
        chunk = client.socket.recv(1 << 20)
        assert chunk
        data += chunk
    client.buffer = bytes(data[count * stride :])
    ends = range(stride, count * stride + 1, stride)
    return [int.from_bytes(data[end - 9 : end - 1], "big") for end in ends]


def passed_over(client: Client, queue: str, count: int) -> None:
    """The same without a look at them."""
    stride = (8 + 4 + 1 + len(TAG) + 9 + 1 + 1 + len(queue)) + (8 + 14) + (8 + 8)
    have = len(client.buffer)
    client.buffer = b""
    while have < count * stride:
        have += len(client.socket.recv(1 << 20))
    assert have == count * stride


def consume(client: Client, queue: str) -> None:
    client.call(1, "basic.consume", queue=queue, consumer_tag=TAG)


def done(client: Client, name: str, **fields: object) -> None:
    """Settles many and waits until it is done."""
    client.send_method(1, name, multiple=True, **fields)
    client.fence(2)


def unacknowledged_is_over(other: Client, queue: str, ready: int) -> None:
    """Waits until so many messages are ready."""
    deadline = time.monotonic() + 60
    while other.call(1, "queue.declare", queue=queue, passive=True).message_count != ready:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def shortest_of_tries(turns: Callable[[], dict[str, float]]) -> dict[str, float]:
    """What `turns` measures, each figure the least of up to three tries: a turn that is long by
    what is done in it is long in each of them, one that was held up by the machine is not."""
    least = turns()
    for _ in range(2):
        if max(least.values()) < LONGEST_MS:
            break
        again = turns()
        least = {name: min(took, again[name]) for name, took in least.items()}
    return least


def test_no_turn_is_long_whatever_is_done_with_very_many_deliveries(
    broker: Appliance, meter: TurnMeter
) -> None:
    least = shortest_of_tries(lambda: turns_of_very_many_deliveries(broker, meter))
    assert {name: took for name, took in least.items() if took > LONGEST_MS} == {}


def turns_of_very_many_deliveries(broker: Appliance, meter: TurnMeter) -> dict[str, float]:
    """The longest turn, in ms, of each way to settle them."""
    longest: dict[str, float] = {}

    def timed(name: str, act: Callable[[], object]) -> None:
        meter.forget()
        act()
        longest[name] = meter.of("broker").longest

    with opened(broker) as other:
        other.call(1, "queue.declare", queue="q")
        fill(other, "q", COUNT)
        with opened(broker) as client:
            consume(client, "q")
            passed_over(client, "q", COUNT)
            # Without the consumer what comes back stays.
            client.call(1, "basic.cancel", consumer_tag=TAG)
            timed("basic.nack", lambda: done(client, "basic.nack", requeue=True))
            consume(client, "q")
            passed_over(client, "q", COUNT)
            client.call(1, "basic.cancel", consumer_tag=TAG)
            timed("basic.recover", lambda: client.call(1, "basic.recover", requeue=True))
            consume(client, "q")
            passed_over(client, "q", COUNT)
            timed("channel.close", lambda: client.call(1, "channel.close"))
            client.call(1, "channel.open")
            consume(client, "q")
            passed_over(client, "q", COUNT)

            def leave() -> None:
                client.reset()
                unacknowledged_is_over(other, "q", COUNT)

            timed("the end of the connection", leave)
        timed("queue.purge", lambda: other.call(1, "queue.purge", queue="q"))
        fill(other, "q", COUNT)
        with opened(broker) as client:
            consume(client, "q")
            passed_over(client, "q", COUNT)
            timed("basic.ack", lambda: done(client, "basic.ack", delivery_tag=COUNT))
        assert other.call(1, "queue.delete", queue="q").message_count == 0
    return longest


def test_a_purge_of_what_came_back_takes_all_and_others_are_served_meanwhile(
    broker: Appliance,
) -> None:
    many = 300_000
    with opened(broker) as other:
        other.call(1, "queue.declare", queue="purged")
        with opened(broker) as client:
            fill(client, "purged", many)
            consume(client, "purged")
            passed_over(client, "purged", many)
            client.reset()
        unacknowledged_is_over(other, "purged", many)
        with opened(broker) as client:
            client.send_method(1, "queue.purge", queue="purged")
            seen = set()
            while 0 not in seen:
                found = other.call(2, "queue.declare", queue="purged", passive=True)
                seen.add(found.message_count)
            assert seen - {0, many}, "all went between two answers"
            assert client.expect("queue.purge-ok", 1).message_count == many
        other.call(1, "queue.delete", queue="purged", if_empty=True)


def test_a_message_with_very_many_routing_keys_is_refused_and_the_limit_says_so(
    broker: Appliance, meter: TurnMeter
) -> None:
    keys = [f"{number:x}" for number in range(5000)]

    def turns() -> dict[str, float]:
        with opened(broker) as client:
            client.call(1, "queue.declare", queue="1")
            client.call(1, "confirm.select")
            meter.forget()
            client.send(publish(1, "", "none", b"", headers={"CC": keys[:256]}) * 40)
            client.expect_confirms(1, 40)
            client.send(publish(1, "amq.topic", "none", b"", headers={"CC": keys}) * 6)
            client.expect_channel_close(1, 406, 60, 40, "5000 routing keys.*routing_keys_max")
            longest = meter.of("broker").longest
            assert client.call(2, "queue.delete", queue="1").message_count == 40
        return {"routing keys": longest}

    assert shortest_of_tries(turns)["routing keys"] < LONGEST_MS


def test_a_queue_with_very_many_consumers_goes_without_a_long_turn(
    broker: Appliance, meter: TurnMeter
) -> None:
    many = 5000

    def turns() -> dict[str, float]:
        with opened(broker) as client:
            client.call(1, "queue.declare", queue="consumed")
            consume = [
                method(1, "basic.consume", queue="consumed", consumer_tag=f"{number}", nowait=True)
                for number in range(many)
            ]
            client.send(b"".join(consume))
            client.fence(1)
            meter.forget()
            client.send_method(1, "queue.delete", queue="consumed")
            client.expect("queue.delete-ok", 1)
            tags = [client.expect("basic.cancel", 1).consumer_tag for _ in range(many)]
            assert tags == [f"{number}" for number in range(many)]
            return {"queue.delete": meter.of("broker").longest}

    assert shortest_of_tries(turns)["queue.delete"] < LONGEST_MS


def test_what_comes_back_in_slices_comes_in_order_and_before_what_was_published_later(
    broker: Appliance,
) -> None:
    many, more = 60_000, 100
    with opened(broker) as client:
        client.call(1, "queue.declare", queue="order")
        fill(client, "order", many)
        client.call(1, "basic.qos", prefetch_count=many)
        consume(client, "order")
        assert deliveries(client, "order", many) == list(range(many))
        fill(client, "order", more, first=many)
        client.send_method(1, "basic.nack", delivery_tag=0, multiple=True, requeue=True)
        assert deliveries(client, "order", many) == list(range(many))
        client.send_method(1, "basic.ack", delivery_tag=0, multiple=True)
        assert deliveries(client, "order", more) == list(range(many, many + more))
        client.call(1, "basic.cancel", consumer_tag=TAG)
        client.call(2, "queue.delete", queue="order")


def test_a_consumer_that_takes_over_gets_all_in_order(broker: Appliance) -> None:
    many, more = 60_000, 100
    with opened(broker) as other:
        other.call(1, "queue.declare", queue="over", arguments={"x-single-active-consumer": True})
        fill(other, "over", many)
        with opened(broker) as client:
            client.call(1, "basic.qos", prefetch_count=many)
            consume(client, "over")
            passed_over(client, "over", many)
            fill(other, "over", more, first=many)
            consume(other, "over")
        assert deliveries(other, "over", many + more) == list(range(many + more))
        other.call(1, "basic.cancel", consumer_tag=TAG)
        other.call(2, "queue.delete", queue="over")


def test_what_a_client_sends_behind_an_ack_of_very_many_sees_it_done(broker: Appliance) -> None:
    many = 100_000
    with opened(broker, (1, 2, 3)) as client:
        client.call(2, "queue.declare", queue="behind")
        fill(client, "behind", many)
        consume(client, "behind")
        passed_over(client, "behind", many)
        client.send_method(1, "channel.close")
        client.send_method(2, "queue.purge", queue="behind")
        client.expect("channel.close-ok", 1)
        assert client.expect("queue.purge-ok", 2).message_count == many
        client.call(2, "queue.delete", queue="behind", if_unused=True, if_empty=True)


def test_publishers_are_confirmed_though_the_consumer_leaves_behind_its_ack(
    broker: Appliance,
) -> None:
    many = 30_000
    with opened(broker) as other, opened(broker) as client:
        other.call(1, "queue.declare", queue="told", arguments={"x-confirm-on": "ack"})
        other.call(1, "confirm.select")
        reader = threading.Thread(target=other.expect_confirms, args=(1, many))
        consume(client, "told")
        frames = publish(1, "", "told", bytes(8)) * 1000
        for _ in range(many // 1000):
            other.send(frames)
        passed_over(client, "told", many)
        reader.start()
        client.send_method(1, "basic.ack", delivery_tag=0, multiple=True)
        client.cut()
        reader.join(60)
        assert not reader.is_alive()
        assert other.call(2, "queue.delete", queue="told").message_count == 0


def test_others_are_served_while_very_many_deliveries_come_back(broker: Appliance) -> None:
    many = 300_000
    with opened(broker) as other, opened(broker) as client:
        other.call(1, "queue.declare", queue="meanwhile")
        other.call(1, "queue.declare", queue="beside")
        fill(other, "meanwhile", many)
        consume(client, "meanwhile")
        passed_over(client, "meanwhile", many)
        client.reset()
        seen = set()
        while many not in seen:
            seen.add(other.call(2, "queue.declare", queue="meanwhile", passive=True).message_count)
        assert seen - {0, many}, "all came back between two answers"
        other.call(1, "queue.delete", queue="meanwhile")
        other.call(1, "queue.delete", queue="beside")


def test_messages_that_a_transaction_puts_aside_are_taken_in_short_turns(
    broker: Appliance, meter: TurnMeter
) -> None:
    """A chunk holds thousands of them, and each takes several times as long as one that is
    routed at once."""
    one = publish(1, "", "aside", b"")

    def turns() -> dict[str, float]:
        with opened(broker) as client:
            client.call(1, "queue.declare", queue="aside", exclusive=True)
            client.call(1, "tx.select")
            meter.forget()
            for _ in range(60):
                client.send(one * 1000)
            client.call(1, "tx.rollback")
            return {"tx.rollback": meter.of("broker").longest}

    assert shortest_of_tries(turns)["tx.rollback"] < LONGEST_MS

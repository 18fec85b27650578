"""What applications build with a broker, through pika, as its users write it."""

from __future__ import annotations

import threading
import time
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import NackError

from tests.clients.conftest import parameters

PERSISTENT = pika.BasicProperties(delivery_mode=2)


def take(channel: BlockingChannel, queue: str, count: int, seconds: float = 20) -> list[bytes]:
    """The next bodies of a queue, acked."""
    found = []
    for method, _, body in channel.consume(queue, inactivity_timeout=seconds):
        assert method is not None, f"{len(found)} of {count} came"
        channel.basic_ack(method.delivery_tag)
        found.append(body)
        if len(found) == count:
            break
    channel.cancel()
    return found


def test_work_that_fails_is_tried_again_later_and_parked_at_last(
    channel: BlockingChannel, name: str
) -> None:
    """A queue without consumers whose messages expire is the wait between two attempts."""
    channel.queue_declare(
        name,
        durable=True,
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}.wait"},
    )
    channel.queue_declare(
        f"{name}.wait",
        durable=True,
        arguments={
            "x-message-ttl": 50,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": name,
        },
    )
    channel.queue_declare(f"{name}.parked", durable=True)
    channel.basic_publish("", name, b"order 4711", PERSISTENT)
    attempts = []
    for method, properties, body in channel.consume(name, inactivity_timeout=60):
        assert method is not None and properties is not None and body is not None
        deaths = (properties.headers or {}).get("x-death", [])
        failed = sum(each["count"] for each in deaths if each["queue"] == name)
        attempts.append(failed)
        if failed < 3:
            channel.basic_reject(method.delivery_tag, requeue=False)
            continue
        channel.basic_publish("", f"{name}.parked", body, properties)
        channel.basic_ack(method.delivery_tag)
        break
    channel.cancel()
    assert attempts == [0, 1, 2, 3]
    _, properties, body = channel.basic_get(f"{name}.parked", auto_ack=True)
    assert body == b"order 4711" and properties is not None
    assert properties.headers["x-first-death-reason"] == "rejected"
    assert {each["reason"] for each in properties.headers["x-death"]} == {"rejected", "expired"}
    for queue in (name, f"{name}.wait", f"{name}.parked"):
        channel.queue_delete(queue)


def test_urgent_work_comes_first(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, durable=True, arguments={"x-max-priority": 10})
    channel.confirm_delivery()
    for priority in (0, 9, 5, 1, 9, 5):
        properties = pika.BasicProperties(priority=priority, delivery_mode=2)
        channel.basic_publish("", name, b"%d" % priority, properties)
    channel.basic_qos(prefetch_count=1)
    assert take(channel, name, 6) == [b"9", b"9", b"5", b"5", b"1", b"0"]
    channel.queue_delete(name)


def test_an_answer_comes_to_who_asked(
    channel: BlockingChannel, amqp_address: tuple[str, int], name: str
) -> None:
    """A remote call by direct reply-to: no queue for the answer."""
    channel.queue_declare(name)
    with pika.BlockingConnection(parameters(amqp_address)) as asking:
        caller = asking.channel()
        answers: list[tuple[str, bytes]] = []
        caller.basic_consume(
            "amq.rabbitmq.reply-to",
            lambda _, method, properties, body: answers.append((properties.correlation_id, body)),
            auto_ack=True,
        )
        for number in range(3):
            properties = pika.BasicProperties(
                reply_to="amq.rabbitmq.reply-to", correlation_id=str(number)
            )
            caller.basic_publish("", name, b"%d" % number, properties)
        for method, properties, body in channel.consume(name, inactivity_timeout=60):
            assert method is not None and properties is not None and body is not None
            answer = pika.BasicProperties(correlation_id=properties.correlation_id)
            channel.basic_publish("", properties.reply_to, b"%d" % int(body) * 2, answer)
            channel.basic_ack(method.delivery_tag)
            if body == b"2":
                break
        channel.cancel()
        while len(answers) < 3:
            asking.process_data_events(time_limit=20)
        assert answers == [("0", b"00"), ("1", b"11"), ("2", b"22")]
    channel.queue_delete(name)


def test_messages_come_when_they_are_due(channel: BlockingChannel, name: str) -> None:
    channel.exchange_declare(
        name, "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"}
    )
    channel.queue_declare(name, durable=True)
    channel.queue_bind(name, name, "later")
    channel.confirm_delivery()
    begun = time.monotonic()
    for delay in (300, 100, 200):
        properties = pika.BasicProperties(headers={"x-delay": delay}, delivery_mode=2)
        channel.basic_publish(name, "later", b"%d" % delay, properties)
    assert take(channel, name, 3) == [b"100", b"200", b"300"]
    assert time.monotonic() - begun >= 0.3, "never early"
    channel.queue_delete(name)
    channel.exchange_delete(name)


def test_what_was_sent_twice_is_done_once(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(
        name, durable=True, arguments={"x-message-deduplication": True, "x-cache-size": 100}
    )
    channel.confirm_delivery()
    for order in ("a", "b", "a", "c", "b"):
        properties = pika.BasicProperties(
            headers={"x-deduplication-header": order}, delivery_mode=2
        )
        channel.basic_publish("", name, order.encode(), properties)
    assert channel.queue_declare(name, passive=True).method.message_count == 3
    assert take(channel, name, 3) == [b"a", b"b", b"c"]
    channel.queue_delete(name)


def test_a_poisonous_message_does_not_turn_for_ever(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(f"{name}.dead", durable=True)
    channel.queue_declare(
        name,
        durable=True,
        arguments={
            "x-queue-type": "quorum",
            "x-delivery-limit": 2,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": f"{name}.dead",
        },
    )
    channel.basic_publish("", name, b"poison", PERSISTENT)
    tries = 0
    for method, properties, _ in channel.consume(name, inactivity_timeout=0.1):
        if method is None or properties is None:
            if channel.queue_declare(f"{name}.dead", passive=True).method.message_count:
                break
            continue
        assert (properties.headers or {}).get("x-delivery-count", 0) == tries
        tries += 1
        channel.basic_nack(method.delivery_tag, requeue=True)
    channel.cancel()
    assert tries == 3
    _, properties, body = channel.basic_get(f"{name}.dead", auto_ack=True)
    assert body == b"poison" and properties is not None
    assert properties.headers["x-first-death-reason"] == "delivery_limit"
    for queue in (name, f"{name}.dead"):
        channel.queue_delete(queue)


def test_a_full_queue_says_no(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(
        name, durable=True, arguments={"x-max-length": 2, "x-overflow": "reject-publish"}
    )
    channel.confirm_delivery()
    for body in (b"1", b"2"):
        channel.basic_publish("", name, body, PERSISTENT)
    with pytest.raises(NackError):
        channel.basic_publish("", name, b"3", PERSISTENT)
    assert take(channel, name, 1) == [b"1"]
    channel.basic_publish("", name, b"4", PERSISTENT)
    assert take(channel, name, 2) == [b"2", b"4"]
    channel.queue_delete(name)


def test_a_confirm_may_mean_that_the_work_is_done(
    channel: BlockingChannel, amqp_address: tuple[str, int], name: str
) -> None:
    """The publisher waits in `basic_publish` until the worker, here its own thread, has acked."""
    channel.queue_declare(name, durable=True, arguments={"x-confirm-on": "ack"})
    done: list[bytes] = []

    def work() -> None:
        with pika.BlockingConnection(parameters(amqp_address)) as working:
            worker = working.channel()
            for method, _, body in worker.consume(name, inactivity_timeout=60):
                assert method is not None and body is not None
                done.append(body)
                worker.basic_ack(method.delivery_tag)
                if body == b"2":
                    break
            worker.cancel()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        channel.confirm_delivery()
        for number in range(3):
            channel.basic_publish("", name, b"%d" % number, PERSISTENT)
            assert len(done) > number, "confirmed before it was done"
    finally:
        thread.join()
    channel.queue_delete(name)


def test_one_worker_takes_over_from_another(
    channel: BlockingChannel, amqp_address: tuple[str, int], name: str
) -> None:
    """A single active consumer; its end makes the next one active, and what it left comes again."""
    channel.queue_declare(name, durable=True, arguments={"x-single-active-consumer": True})
    for number in range(4):
        channel.basic_publish("", name, b"%d" % number, PERSISTENT)
    done: list[tuple[bytes, bool]] = []

    def work(channel: BlockingChannel, method: Any, _: Any, body: bytes) -> None:
        done.append((body, method.redelivered))
        channel.basic_ack(method.delivery_tag)

    with pika.BlockingConnection(parameters(amqp_address)) as first:
        active = first.channel()
        active.basic_qos(prefetch_count=1)
        _, _, body = next(active.consume(name, inactivity_timeout=60))
        assert body == b"0"
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume(name, work)
        channel.connection.process_data_events(time_limit=0.1)
        assert done == []
    while len(done) < 4:
        channel.connection.process_data_events(time_limit=20)
    # pika cancels before it closes, so the next message may come before the one left behind.
    assert sorted(done) == [(b"0", True), (b"1", False), (b"2", False), (b"3", False)]
    channel.queue_delete(name)

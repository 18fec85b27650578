"""A broker under load of every kind, for tests that look at all of its figures."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pika

from tests.appliance import Appliance

DURABLE = {"durable": True}
# Name, how it is declared, x-arguments.
QUEUES: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("work", DURABLE, {}),
    ("busy", DURABLE, {}),
    ("full", {}, {"x-max-length": 2, "x-overflow": "reject-publish"}),
    ("drops", {}, {"x-max-length": 2, "x-dead-letter-exchange": "amq.fanout"}),
    ("expires", {}, {"x-message-ttl": 1, "x-dead-letter-exchange": "amq.fanout"}),
    ("dead", {}, {}),
    ("limited", DURABLE, {"x-queue-type": "quorum", "x-delivery-limit": 1}),
    ("log", DURABLE, {"x-queue-type": "stream"}),
    ("one", {}, {"x-single-active-consumer": True}),
    ("mine", {"exclusive": True}, {}),
    ("leaves", {"auto_delete": True}, {"x-consumer-timeout": 600_000}),
    ("idle", {}, {}),
)


class Load:
    """Clients that use every queue; `step` does a bit of everything once."""

    def __init__(self, broker: Appliance) -> None:
        self.connections: list[Any] = []
        self.steps = 0
        host, port = broker.addresses["amqp"]
        for name in ("publisher", "consumer"):
            parameters = pika.ConnectionParameters(
                host, port, client_properties={"connection_name": name}, heartbeat=60
            )
            self.connections.append(pika.BlockingConnection(parameters))
        publisher, consumer = self.connections
        self.confirming, self.plain, self.open = (publisher.channel() for _ in range(3))
        self.taking, self.slow = (consumer.channel() for _ in range(2))
        self.declare()
        self.confirming.confirm_delivery()
        self.open.tx_select()
        self.consume()

    def declare(self) -> None:
        channel = self.plain
        channel.exchange_declare("spread", "topic", durable=True)
        channel.exchange_declare("inner", "direct", internal=True, auto_delete=True)
        channel.exchange_bind("inner", "spread", "inner")
        for name, flags, arguments in QUEUES:
            owner = self.taking if name == "mine" else channel
            owner.queue_declare(name, arguments=arguments, **flags)
        for queue in ("work", "busy", "log"):
            channel.queue_bind(queue, "spread", f"{queue}.#", {"x": queue})
        channel.queue_bind("dead", "amq.fanout", "")

    def consume(self) -> None:
        self.taking.basic_qos(prefetch_count=20)
        for queue, more in (
            ("busy", {}),
            ("log", {"arguments": {"x-stream-offset": "first"}}),
            ("mine", {"auto_ack": True, "exclusive": True}),
            ("one", {"arguments": {"x-priority": 3}}),
            ("one", {"consumer_tag": "second"}),
        ):
            take = self.ack if "auto_ack" not in more else lambda *_: None
            self.taking.basic_consume(queue, take, **more)
        self.slow.basic_qos(prefetch_count=7, global_qos=True)
        self.slow.basic_qos(prefetch_count=1)
        self.slow.basic_consume("work", lambda *_: None, consumer_tag="slow")
        self.slow.basic_consume("leaves", lambda *_: None)

    def ack(self, channel: Any, method: Any, *_: Any) -> None:
        if method.delivery_tag % 5 == 0:
            channel.basic_reject(method.delivery_tag, requeue=False)
        else:
            channel.basic_ack(method.delivery_tag)

    def step(self) -> None:
        self.steps += 1
        for queue, _, _ in QUEUES:
            if queue in ("idle", "limited"):
                continue
            with contextlib.suppress(pika.exceptions.NackError):
                self.confirming.basic_publish("", queue, b"x" * 50 * self.steps, self.stamp(2))
        for _ in range(2):
            self.plain.basic_publish("", "drops", b"d")
        for key in ("work.a", "busy.b", "log.c", "inner", "nowhere"):
            self.plain.basic_publish("spread", key, b"y" * 20 * self.steps, self.stamp(1))
        self.plain.basic_publish("", "limited", b"z", self.stamp(2))
        with contextlib.suppress(pika.exceptions.UnroutableError):
            self.confirming.basic_publish("spread", "nowhere", b"r", mandatory=True)
        for number in range(self.steps):
            self.open.basic_publish("", "idle", b"o" * number)
        self.connections[0].process_data_events(0)
        self.connections[1].process_data_events(0.05)
        for _ in range(2):
            method, _, _ = self.slow.basic_get("limited")
            if method is not None:
                self.slow.basic_nack(method.delivery_tag, requeue=True)
        self.slow.basic_get("dead", auto_ack=True)
        self.slow.basic_get("idle")
        self.slow.basic_get("work")
        method, _, _ = self.slow.basic_get("drops")
        if method is not None and self.steps == 2:
            self.open.tx_commit()
        extra = self.connections[1].channel()
        extra.queue_declare(f"short {self.steps}")
        extra.queue_delete(f"short {self.steps}")
        extra.close()

    def stamp(self, mode: int) -> pika.BasicProperties:
        return pika.BasicProperties(delivery_mode=mode, timestamp=1_700_000_000 + self.steps)

    def close(self) -> None:
        for connection in self.connections:
            if connection.is_open:
                connection.close()


@contextlib.contextmanager
def load(broker: Appliance) -> Iterator[Load]:
    loaded = Load(broker)
    try:
        yield loaded
    finally:
        loaded.close()

"""`manage.py demo`: a small shop that talks to the running appliance, so that every page has
something true to show.

Two storefronts publish orders to the topic exchange `shop.orders`. The warehouse's three workers
ack, sometimes reject an order and sometimes put one back. The till turns orders into payments.
One mail sender is slower than the orders come in, and `shop.audit` has no consumer.

Every part has its own connection and connects again when the broker goes away.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection
from pika.exceptions import AMQPError

from broker.process.lifetime import program
from broker.settings import config as settings
from management.starting import read_note

ORDERS = "shop.orders"
PAYMENTS = "shop.payments"
# Queue: the routing keys of `shop.orders` that lead to it.
QUEUES = {
    "shop.warehouse": ("order.*.standard", "order.*.express"),
    "shop.express": ("order.*.express",),
    "shop.till": ("order.#",),
    "shop.mail": ("order.eu.*",),
    "shop.audit": ("#",),
}
LEDGER = "shop.ledger"
REGIONS = ("eu", "us", "asia")
GOODS = ("lantern", "kettle", "map", "compass", "blanket", "rope")
REPORT_EVERY = 5.0
TURN = 0.2


class Shop:
    """What the parts share: where the broker is, when to stop, what happened so far."""

    def __init__(self, parameters: pika.ConnectionParameters, rate: float) -> None:
        self.parameters = parameters
        self.rate = rate
        self.stopping = threading.Event()
        self.counted: Counter[str] = Counter()
        self._lock = threading.Lock()

    def count(self, what: str) -> None:
        with self._lock:
            self.counted[what] += 1

    def totals(self) -> Counter[str]:
        with self._lock:
            return self.counted.copy()

    def connect(self, name: str) -> BlockingConnection:
        parameters = pika.ConnectionParameters(
            host=self.parameters.host,
            port=self.parameters.port,
            credentials=self.parameters.credentials,
            heartbeat=30,
            client_properties={
                "connection_name": name,
                "product": "Leveret demo shop",
                "information": "https://pika.readthedocs.io",
            },
        )
        return BlockingConnection(parameters)

    def keep(self, name: str, work: Callable[[BlockingChannel], None]) -> None:
        """Run one part until the shop closes, with a new connection whenever one is lost."""
        while not self.stopping.is_set():
            try:
                connection = self.connect(name)
            except (AMQPError, OSError):
                self.stopping.wait(1.0)
                continue
            try:
                work(connection.channel())
            except (AMQPError, OSError):
                self.count("connections lost")
                self.stopping.wait(0.5)
            finally:
                if connection.is_open:
                    connection.close()


def declare(channel: BlockingChannel) -> None:
    """The exchanges, queues and bindings of the shop; saying it again changes nothing."""
    channel.exchange_declare(ORDERS, "topic", durable=True)
    channel.exchange_declare(PAYMENTS, "direct", durable=True)
    for queue, keys in QUEUES.items():
        channel.queue_declare(queue, durable=True)
        for key in keys:
            channel.queue_bind(queue, ORDERS, key)
    channel.queue_declare(LEDGER, durable=True)
    channel.queue_bind(LEDGER, PAYMENTS, "payment.settled")


def storefront(shop: Shop, city: str) -> Callable[[BlockingChannel], None]:
    chance = random.Random(city)  # noqa: S311 - the same shop each time

    def work(channel: BlockingChannel) -> None:
        channel.confirm_delivery()
        while not shop.stopping.wait(chance.expovariate(shop.rate / 2)):
            number = f"order-{uuid.UUID(int=chance.getrandbits(128)).hex[:10]}"
            region = chance.choice(REGIONS)
            speed = "express" if chance.random() < 0.2 else "standard"
            order = {
                "order": number,
                "city": city,
                "items": [
                    {"article": chance.choice(GOODS), "count": chance.randint(1, 4)}
                    for _ in range(chance.randint(1, 5))
                ],
            }
            channel.basic_publish(
                ORDERS,
                f"order.{region}.{speed}",
                json.dumps(order).encode(),
                properties(number, f"storefront {city}", {"region": region, "speed": speed}),
            )
            shop.count("orders placed")
            channel.connection.process_data_events(0)

    return work


def properties(number: str, app: str, headers: dict[str, Any]) -> pika.BasicProperties:
    return pika.BasicProperties(
        content_type="application/json",
        delivery_mode=2,
        message_id=number,
        app_id=app,
        timestamp=int(time.time()),
        headers=headers,
    )


def consumer(
    shop: Shop, queue: str, prefetch: int, handle: Callable[[BlockingChannel, Any, bytes], None]
) -> Callable[[BlockingChannel], None]:
    """A part that reads one queue; `handle` gets the channel, the delivery and the body."""

    def work(channel: BlockingChannel) -> None:
        channel.basic_qos(prefetch_count=prefetch)
        channel.basic_consume(queue, lambda ch, method, _, body: handle(ch, method, body))
        while not shop.stopping.is_set():
            channel.connection.process_data_events(TURN)

    return work


def warehouse(shop: Shop, number: int) -> Callable[[BlockingChannel], None]:
    chance = random.Random(number)  # noqa: S311 - the same shop each time

    def handle(channel: BlockingChannel, method: Any, body: bytes) -> None:
        if shop.stopping.wait(chance.uniform(0.0, 0.04)):
            return
        fate = chance.random()
        if fate < 0.02:
            channel.basic_reject(method.delivery_tag, requeue=False)
            shop.count("rejected")
        elif fate < 0.05 and not method.redelivered:
            channel.basic_nack(method.delivery_tag, requeue=True)
            shop.count("put back")
        else:
            channel.basic_ack(method.delivery_tag)
            shop.count("shipped")

    return consumer(shop, "shop.warehouse", 20, handle)


def express(shop: Shop) -> Callable[[BlockingChannel], None]:
    def handle(channel: BlockingChannel, method: Any, body: bytes) -> None:
        channel.basic_ack(method.delivery_tag)
        shop.count("sent express")

    return consumer(shop, "shop.express", 50, handle)


def till(shop: Shop) -> Callable[[BlockingChannel], None]:
    def handle(channel: BlockingChannel, method: Any, body: bytes) -> None:
        try:
            order = json.loads(body)
            amount = sum(item["count"] for item in order["items"]) * 1250
            payment = {"order": order["order"], "cents": amount}
        except (ValueError, KeyError, TypeError):
            # Any client may publish to the shop, from the console for example.
            channel.basic_reject(method.delivery_tag, requeue=False)
            shop.count("rejected")
            return
        channel.basic_publish(
            PAYMENTS,
            "payment.settled",
            json.dumps(payment).encode(),
            properties(order["order"], "till", {"currency": "EUR"}),
        )
        channel.basic_ack(method.delivery_tag)
        shop.count("payments taken")

    return consumer(shop, "shop.till", 50, handle)


def ledger(shop: Shop) -> Callable[[BlockingChannel], None]:
    def handle(channel: BlockingChannel, method: Any, body: bytes) -> None:
        if method.delivery_tag % 10 == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)

    return consumer(shop, LEDGER, 100, handle)


def mail(shop: Shop) -> Callable[[BlockingChannel], None]:
    def handle(channel: BlockingChannel, method: Any, body: bytes) -> None:
        if shop.stopping.wait(0.4):
            return  # what is unfinished at closing time goes back to the queue
        channel.basic_ack(method.delivery_tag)
        shop.count("mails sent")

    return consumer(shop, "shop.mail", 5, handle)


def parts(shop: Shop) -> dict[str, Callable[[BlockingChannel], None]]:
    """Connection name to what that part does."""
    return {
        "storefront Lisbon": storefront(shop, "Lisbon"),
        "storefront Riga": storefront(shop, "Riga"),
        "warehouse worker 1": warehouse(shop, 1),
        "warehouse worker 2": warehouse(shop, 2),
        "warehouse worker 3": warehouse(shop, 3),
        "express desk": express(shop),
        "till": till(shop),
        "ledger": ledger(shop),
        "mail sender (slow)": mail(shop),
    }


def main(argv: Sequence[str]) -> int:
    """Open the shop until Ctrl-C or for `--seconds`; returns an exit status."""
    parser = argparse.ArgumentParser(prog=f"{program()} demo", description=__doc__)
    parser.add_argument("--seconds", type=float, help="close after this time; else at Ctrl-C")
    parser.add_argument("--rate", type=float, default=20.0, help="orders per second (20)")
    options, rest = parser.parse_known_args(argv)
    try:
        config = settings.load(rest, os.environ)
    except settings.ConfigError as error:
        print(f"leveret demo: {error}", file=sys.stderr)
        return settings.EXIT_CONFIG
    host, port = read_note(config.addresses_file).get("amqp", [config.bind[0], config.amqp_port])[
        :2
    ]
    credentials = pika.PlainCredentials(config.default_user, config.default_password)
    shop = Shop(pika.ConnectionParameters(host, port, credentials=credentials), options.rate)
    try:
        connection = shop.connect("opening the shop")
        declare(connection.channel())
        connection.close()
    except (AMQPError, OSError) as error:
        print(
            f"leveret demo: no broker to talk to at {host}:{port} ({_reason(error)});"
            " start one with `make run`",
            file=sys.stderr,
        )
        return os.EX_UNAVAILABLE
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: shop.stopping.set())
    print(f"The shop is open at amqp://{host}:{port}; Ctrl-C closes it", flush=True)
    threads = [
        threading.Thread(target=shop.keep, args=part, name=part[0]) for part in parts(shop).items()
    ]
    for thread in threads:
        thread.start()
    _report_until_closed(shop, options.seconds)
    for thread in threads:
        thread.join(10)
    print(f"The shop is closed: {_line(shop)}", flush=True)
    return 0


def _reason(error: BaseException) -> str:
    """The innermost error of those that pika packs into one another."""
    for attribute in (*error.args, *vars(error).values()):
        if isinstance(attribute, BaseException):
            return _reason(attribute)
    return str(error) or type(error).__name__


def _report_until_closed(shop: Shop, seconds: float | None) -> None:
    closing = None if seconds is None else time.monotonic() + seconds
    while not shop.stopping.is_set():
        left = REPORT_EVERY if closing is None else min(REPORT_EVERY, closing - time.monotonic())
        if left <= 0:
            shop.stopping.set()
        elif not shop.stopping.wait(left):
            print(_line(shop), flush=True)


def _line(shop: Shop) -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(shop.totals().items())) or "quiet"

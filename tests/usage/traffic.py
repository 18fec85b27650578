"""Random traffic of every kind, and the ledger that its clients keep."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from typing import Any

import pika
import pika.exceptions
import pytest

from tests.appliance import Appliance
from tests.reports.conftest import wait_until

Identity = tuple[str, ...]
Sums = dict[Identity, Counter[str]]


class Ledger:
    """What happened, as clients know it: sums by kind and name."""

    def __init__(self) -> None:
        self.sums: Sums = defaultdict(Counter)
        self.held: Counter[str] = Counter()

    def add(self, identity: Identity, column: str, body: bytes | None = None) -> None:
        self.sums[identity][column] += 1
        if body is not None:
            self.sums[identity][f"{column}_bytes"] += len(body)


class Client:
    """One connection with a user and a library name; every call is noted in the ledger."""

    def __init__(self, broker: Appliance, ledger: Ledger, client: str, prefix: str) -> None:
        self.ledger = ledger
        self.prefix = prefix
        self.user = ("user", "guest", client)
        parameters = pika.URLParameters(broker.amqp_url)
        parameters.client_properties = {"product": client, "version": "7"}
        self.connection = pika.BlockingConnection(parameters)
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()
        self.expected: dict[str, list[bytes]] = defaultdict(list)

    def name(self, queue: str) -> str:
        return f"{self.prefix}.{queue}"

    def queue(self, name: str) -> Identity:
        return ("queue", self.name(name))

    def note(self, identity: Identity, column: str, body: bytes | None = None) -> None:
        self.ledger.add(identity, column, body)

    def took(self, queue: str, body: bytes, *, confirm: bool = True) -> None:
        """A queue has a message more."""
        self.note(self.queue(queue), "publish", body)
        if confirm:
            self.note(self.queue(queue), "confirm")
        self.ledger.held[self.name(queue)] += 1

    def left(self, queue: str) -> None:
        self.ledger.held[self.name(queue)] -= 1

    def sent(self, exchange: str, body: bytes, outcome: str) -> None:
        """A publish by an exchange: `routed`, `return_unroutable` or `drop_unroutable`."""
        self.note(self.user, "publish", body)
        self.note(self.user, outcome, body)
        self.note(("exchange", exchange), "publish_in", body)
        self.note(("exchange", exchange), "publish_out" if outcome == "routed" else outcome, body)

    def publish(self, queue: str, body: bytes) -> None:
        """By the default exchange, confirmed."""
        self.sent("", body, "routed")
        self.note(self.user, "confirm")
        self.took(queue, body)
        self.channel.basic_publish(
            "", self.name(queue), body, pika.BasicProperties(delivery_mode=2)
        )

    def delivered(self, queue: str, how: str, body: bytes, redelivered: bool) -> None:
        for identity in (self.user, self.queue(queue)):
            self.note(identity, how, body)
            if redelivered:
                self.note(identity, "redeliver", body)

    def settled(self, queue: str, how: str, body: bytes) -> None:
        for identity in (self.user, self.queue(queue)):
            self.note(identity, how, body)

    def get(self, queue: str, *, no_ack: bool) -> tuple[int, bytes] | None:
        method, _, body = self.channel.basic_get(self.name(queue), auto_ack=no_ack)
        if method is None:
            for identity in (self.user, self.queue(queue)):
                self.note(identity, "get_empty")
            return None
        self.delivered(queue, "get_no_ack" if no_ack else "get", body, method.redelivered)
        if no_ack:
            self.left(queue)
        return method.delivery_tag, body

    def consume(self, queue: str, count: int, *, no_ack: bool) -> list[tuple[int, bytes]]:
        """Takes so many messages; with acks none is settled yet."""
        found: list[tuple[int, bytes]] = []
        self.channel.basic_qos(prefetch_count=count)

        def on_message(_: Any, method: Any, __: Any, body: bytes) -> None:
            how = "deliver_no_ack" if no_ack else "deliver"
            self.delivered(queue, how, body, method.redelivered)
            if no_ack:
                self.left(queue)
            found.append((method.delivery_tag, body))

        tag = self.channel.basic_consume(self.name(queue), on_message, auto_ack=no_ack)
        deadline = time.monotonic() + 30
        while len(found) < count:
            assert time.monotonic() < deadline, (queue, len(found), count)
            self.connection.process_data_events(0.2)
        self.channel.basic_cancel(tag)
        return found

    def settle(self, queue: str, tag: int, body: bytes, how: str) -> None:
        if how == "ack":
            self.channel.basic_ack(tag)
        else:
            self.channel.basic_nack(tag, requeue=how == "requeue")
        if how != "requeue":
            self.settled(queue, how, body)
            self.left(queue)


QUEUES: dict[str, dict[str, Any]] = {
    "work": {},
    "other": {},
    "plain": {},
    "gets": {},
    "short": {"x-max-length": 3},
    "full": {"x-max-length": 4, "x-overflow": "reject-publish"},
    "brief": {"x-message-ttl": 1, "x-dead-letter-exchange": ""},
    "brief-lost": {"x-message-ttl": 1},
    "strict": {"x-dead-letter-exchange": ""},
    "lost": {"x-dead-letter-exchange": "there is none"},
    "tired": {
        "x-queue-type": "quorum",
        "x-delivery-limit": 1,
        "x-dead-letter-exchange": "",
    },
    "dead": {},
    "levels": {"x-max-priority": 3},
    "swept": {},
    "log": {"x-queue-type": "stream"},
}


class Traffic:
    """Steps that leave every queue in a state that the ledger knows."""

    def __init__(self, broker: Appliance, ledger: Ledger, prefix: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.broker = broker
        self.ledger = ledger
        self.one = Client(broker, ledger, "first library", prefix)
        self.two = Client(broker, ledger, "second library", prefix)
        self.exchange = f"{prefix}.events"
        channel = self.one.channel
        for name, arguments in QUEUES.items():
            if arguments.get("x-dead-letter-exchange") == "":
                arguments = {**arguments, "x-dead-letter-routing-key": f"{prefix}.dead"}
            channel.queue_declare(self.one.name(name), durable=True, arguments=arguments)
        channel.exchange_declare(self.exchange, "topic", durable=True)
        for name in ("work", "other", "levels"):
            channel.queue_bind(self.one.name(name), self.exchange, "three.#")
        self.steps = [
            value for name, value in sorted(vars(type(self)).items()) if name.startswith("step_")
        ]

    def run(self, count: int) -> None:
        """Every step once, in any order, then some of them again."""
        steps = self.random.sample(self.steps, len(self.steps))
        for step in [*steps, *self.random.choices(self.steps, k=count)]:
            step(self, self.random.choice((self.one, self.two)))

    def close(self) -> None:
        self.one.connection.close()
        self.two.connection.close()

    def body(self) -> bytes:
        return self.random.randbytes(self.random.choice((0, 1, 40, 300, 9000)))

    def step_consume_with_acks(self, client: Client) -> None:
        for _ in range(self.random.randint(1, 6)):
            client.publish("work", self.body())
        ready = self.ledger.held[client.name("work")]
        for tag, body in client.consume("work", self.random.randint(1, ready), no_ack=False):
            how = self.random.choice(("ack", "ack", "reject", "requeue"))
            client.settle("work", tag, body, how)
            if how == "reject":
                client.note(client.queue("work"), "discard_rejected", body)

    def step_consume_without_acks(self, client: Client) -> None:
        for _ in range(self.random.randint(1, 6)):
            client.publish("plain", self.body())
        client.consume("plain", self.ledger.held[client.name("plain")], no_ack=True)

    def step_get(self, client: Client) -> None:
        for _ in range(self.random.randint(0, 3)):
            client.publish("gets", self.body())
        for _ in range(4):
            no_ack = self.random.random() < 0.5
            got = client.get("gets", no_ack=no_ack)
            if got is not None and not no_ack:
                client.settle("gets", *got, self.random.choice(("ack", "requeue")))

    def step_publish_to_three(self, client: Client) -> None:
        for _ in range(self.random.randint(1, 3)):
            body = self.body()
            client.sent(self.exchange, body, "routed")
            client.note(client.user, "confirm")
            for name in ("work", "other", "levels"):
                client.took(name, body)
            client.channel.basic_publish(
                self.exchange,
                "three.times",
                body,
                pika.BasicProperties(delivery_mode=2, priority=self.random.randint(0, 3)),
            )

    def step_publish_to_no_queue(self, client: Client) -> None:
        for exchange in ("", self.exchange):
            body = self.body()
            client.sent(exchange, body, "drop_unroutable")
            client.note(client.user, "confirm")
            client.channel.basic_publish(exchange, "nowhere", body)
            body = self.body()
            client.sent(exchange, body, "return_unroutable")
            client.note(client.user, "confirm")
            with pytest.raises(pika.exceptions.UnroutableError):
                client.channel.basic_publish(exchange, "nowhere", body, mandatory=True)

    def step_drop_the_oldest(self, client: Client) -> None:
        queue = client.queue("short")
        for _ in range(5):
            client.publish("short", self.body())
            client.expected["short"] = []
        # Which bodies went is known by those that are left, which are the newest three.
        while self.ledger.held[client.name("short")] > 3:
            client.note(queue, "dropped")
            client.note(queue, "discard_maxlen")
            client.left("short")
        left = 0
        while (got := client.get("short", no_ack=True)) is not None:
            left += len(got[1])
        sums = self.ledger.sums[queue]
        gone = sums["publish_bytes"] - sums["get_no_ack_bytes"]
        sums["dropped_bytes"] = sums["discard_maxlen_bytes"] = gone

    def step_refuse(self, client: Client) -> None:
        queue, exchange = client.queue("full"), ("exchange", "")
        for _ in range(6):
            body = self.body()
            if self.ledger.held[client.name("full")] < 4:
                client.publish("full", body)
                continue
            client.sent("", body, "routed")
            for identity in (client.user, exchange, queue):
                client.note(identity, "refused", body)
            with pytest.raises(pika.exceptions.NackError):
                client.channel.basic_publish("", client.name("full"), body)
        client.get("full", no_ack=True)

    def step_expire(self, client: Client) -> None:
        body = self.body()
        client.publish("brief", body)
        client.note(client.queue("brief"), "expired", body)
        client.note(client.queue("brief"), "dead_letter_expired", body)
        client.left("brief")
        self.letter(client, body)
        body = self.body()
        client.publish("brief-lost", body)
        client.note(client.queue("brief-lost"), "expired", body)
        client.note(client.queue("brief-lost"), "discard_expired", body)
        client.left("brief-lost")
        self.await_held(client, "brief-lost")

    def step_reject_into_dead_letters(self, client: Client) -> None:
        body = self.body()
        client.publish("strict", body)
        ((tag, got),) = client.consume("strict", 1, no_ack=False)
        client.settle("strict", tag, got, "reject")
        client.note(client.queue("strict"), "dead_letter_rejected", body)
        self.letter(client, body)

    def step_reject_where_no_queue_is_behind(self, client: Client) -> None:
        body = self.body()
        client.publish("lost", body)
        ((tag, got),) = client.consume("lost", 1, no_ack=False)
        client.settle("lost", tag, got, "reject")
        client.note(client.queue("lost"), "discard_rejected", body)

    def step_bring_back_too_often(self, client: Client) -> None:
        body = self.body()
        client.publish("tired", body)
        for _ in range(2):
            got = client.get("tired", no_ack=False)
            assert got is not None
            client.settle("tired", *got, "requeue")
        client.note(client.queue("tired"), "dead_letter_delivery_limit", body)
        client.left("tired")
        self.letter(client, body)

    def letter(self, client: Client, body: bytes) -> None:
        """A dead letter is on its way; it is taken as soon as it is there."""
        client.took("dead", body, confirm=False)
        self.await_held(client, "dead")

    def await_held(self, client: Client, name: str) -> None:
        queue = client.name(name)
        wanted = self.ledger.held[queue]

        def is_there() -> bool:
            found = client.channel.queue_declare(queue, passive=True).method.message_count
            return bool(found == wanted)

        wait_until(is_there, f"{queue} to hold {wanted}", 20)

    def step_purge_and_delete(self, client: Client) -> None:
        queue = client.queue("swept")
        for column in ("purge", "delete"):
            for _ in range(self.random.randint(0, 3)):
                body = self.body()
                client.publish("swept", body)
                client.note(queue, column, body)
                client.left("swept")
            if column == "purge":
                client.channel.queue_purge(client.name("swept"))
        client.channel.queue_delete(client.name("swept"))
        client.channel.queue_declare(client.name("swept"), durable=True)

    def step_commit_and_roll_back(self, client: Client) -> None:
        channel = client.connection.channel()
        channel.tx_select()
        for ends in (True, False):
            for _ in range(2):
                body = self.body()
                channel.basic_publish("", client.name("other"), body)
                if ends:
                    client.sent("", body, "routed")
                    client.took("other", body, confirm=False)
                else:
                    client.note(client.user, "publish", body)
            if ends:
                channel.tx_commit()
            else:
                channel.tx_rollback()
        channel.close()

    def step_publish_where_no_exchange_is(self, client: Client) -> None:
        channel = client.connection.channel()
        body = self.body()
        client.note(client.user, "publish", body)
        channel.basic_publish("no such exchange", "key", body)
        with pytest.raises(pika.exceptions.ChannelClosedByBroker):
            channel.queue_declare(client.name("work"), passive=True)

    def step_read_a_stream(self, client: Client) -> None:
        for _ in range(self.random.randint(1, 3)):
            client.publish("log", self.body())
        channel = client.connection.channel()
        channel.basic_qos(prefetch_count=100)
        count = self.ledger.held[client.name("log")]
        seen = []
        channel.basic_consume(
            client.name("log"),
            lambda _, method, __, body: seen.append((method.delivery_tag, body)),
            arguments={"x-stream-offset": "first"},
        )
        wait_until(lambda: self.turn(client) or len(seen) >= count, "the stream", 30)
        for tag, body in seen:
            client.delivered("log", "deliver", body, False)
            channel.basic_ack(tag)
            client.settled("log", "ack", body)
        channel.close()

    @staticmethod
    def turn(client: Client) -> bool:
        client.connection.process_data_events(0.05)
        return False

"""Clients that mean well and are not in `tests.crash`: browsers, scrapers, importers, and users of
delays, time limits, WebSockets and short connections. Each repeats one piece of work."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable

import httpx
import pika
from pika.exceptions import AMQPError
from websockets.exceptions import WebSocketException

from tests.amqp import raw
from tests.api.test_sessions import live, sign_in
from tests.appliance import Appliance
from tests.crash.storm import DURABLE, connect
from tests.fuzz.doors import WebSocketPeer
from tests.fuzz.sessions import opening

PAGES = ("/", "/queues", "/exchanges", "/connections", "/channels", "/consumers", "/policies")
PAGES += ("/problems", "/node", "/vhosts", "/users", "/log", "/definitions", "/reports")
ROUTES = ("overview", "queues", "exchanges", "connections", "channels", "bindings", "nodes")
DOCUMENT = {
    "queues": [
        {"name": f"imported.{n}", "vhost": "/", "durable": True, "auto_delete": False}
        | {"arguments": {"x-max-length": 100}}
        for n in range(20)
    ],
    "bindings": [
        {"source": "amq.topic", "vhost": "/", "destination": f"imported.{n}"}
        | {"destination_type": "queue", "routing_key": f"imported.{n}.#", "arguments": {}}
        for n in range(20)
    ],
    "policies": [
        {"vhost": "/", "name": "imported", "pattern": "^imported\\.", "apply-to": "queues"}
        | {"definition": {"max-length": 50}, "priority": 1}
    ],
}


def delays(appliance: Appliance, chance: random.Random) -> None:
    """Delayed messages, and messages whose time is over, dead-lettered."""
    connection = connect(appliance.amqp_port)
    channel = connection.channel()
    delayed = {"x-delayed-type": "topic"}
    channel.exchange_declare("soak.later", "x-delayed-message", durable=True, arguments=delayed)
    channel.queue_declare("soak.due", durable=True, arguments={"x-max-length": 1000})
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "soak.due"}
    channel.queue_declare("soak.short", durable=True, arguments={"x-message-ttl": 200, **letters})
    channel.queue_bind("soak.due", "soak.later", "#")
    for _ in range(100):
        headers = {"x-delay": chance.randrange(1, 3000)}
        later = pika.BasicProperties(delivery_mode=2, headers=headers)
        channel.basic_publish("soak.later", "a.b", chance.randbytes(200), later)
        channel.basic_publish("", "soak.short", chance.randbytes(200), DURABLE)
    for _ in range(300):
        channel.basic_get("soak.due", auto_ack=True)
    connection.close()


def stream(appliance: Appliance, chance: random.Random) -> None:
    """Writes to a stream, and reads it from the first message on."""
    connection = connect(appliance.amqp_port)
    channel = connection.channel()
    arguments = {"x-queue-type": "stream", "x-max-length-bytes": 5_000_000}
    channel.queue_declare("soak.stream", durable=True, arguments=arguments)
    for _ in range(200):
        channel.basic_publish("", "soak.stream", chance.randbytes(500), DURABLE)
    channel.basic_qos(prefetch_count=50)
    seen = []

    def take(channel: object, method: object, _properties: object, body: bytes) -> None:
        seen.append(len(body))
        channel.basic_ack(method.delivery_tag)  # type: ignore[attr-defined]

    channel.basic_consume("soak.stream", take, arguments={"x-stream-offset": "first"})
    until = time.monotonic() + 1
    while time.monotonic() < until and len(seen) < 500:
        connection.process_data_events(0.1)
    connection.close()


def websockets(appliance: Appliance, chance: random.Random) -> None:
    """AMQP over both WebSocket doors."""
    for port in (appliance.ws_port, appliance.http_port):
        peer = WebSocketPeer(("127.0.0.1", port), chance, False)
        for piece in opening():
            peer.send(piece)
        peer.send(raw.method(1, "queue.declare", queue="soak.ws", auto_delete=True))
        for _ in range(50):
            peer.send(raw.publish(1, "", "soak.ws", chance.randbytes(1000)))
        peer.send(raw.method(1, "basic.consume", queue="soak.ws", no_ack=True))
        peer.send(raw.method(0, "connection.close", reply_code=200))
        peer.finish()


def churn(appliance: Appliance, chance: random.Random) -> None:
    """Connections, channels, queues and bindings that do not last."""
    for _ in range(5):
        connection = connect(appliance.amqp_port)
        for _ in range(5):
            channel = connection.channel()
            name = channel.queue_declare("", exclusive=True).method.queue
            channel.queue_bind(name, "amq.topic", f"churn.{chance.randrange(100)}.#")
            channel.basic_consume(name, lambda *_: None)
        if chance.random() < 0.5:
            connection.close()
        else:
            connection._impl._transport.abort()


def browse(appliance: Appliance, chance: random.Random) -> None:
    """Signs in, opens pages, follows the overview on a live socket for a moment, signs out."""
    with httpx.Client(base_url=appliance.http_url, timeout=60) as client:
        sign_in(client, "guest", "guest")
        for page in chance.sample(PAGES, 5):
            client.get(page)
        with live(client) as following:
            following.send('{"type": "subscribe", "topic": "overview", "id": 1}')
            for _ in range(2):
                following.recv(30)


def scrape(appliance: Appliance, chance: random.Random) -> None:
    """What monitoring asks."""
    metrics = f"http://127.0.0.1:{appliance.metrics_port}/metrics"
    for path in ("", "/per-object", "/detailed?family=queue_coarse_metrics"):
        httpx.get(metrics + path, timeout=60)
    with httpx.Client(base_url=appliance.http_url, auth=("guest", "guest"), timeout=60) as client:
        for route in chance.sample(ROUTES, 3):
            client.get(f"/api/{route}")


def bring_in(appliance: Appliance, chance: random.Random) -> None:
    """Imports definitions, takes some of them away, and exports all."""
    with httpx.Client(base_url=appliance.http_url, auth=("guest", "guest"), timeout=60) as client:
        client.post("/api/definitions", content=json.dumps(DOCUMENT))
        client.delete(f"/api/queues/%2F/imported.{chance.randrange(20)}")
        client.get("/api/definitions")


KINDS: tuple[Callable[[Appliance, random.Random], None], ...] = (
    *(delays, stream, websockets, churn, browse, scrape, bring_in),
)
EXPECTED = (AMQPError, OSError, httpx.HTTPError, WebSocketException, EOFError, AssertionError)
"""What a client meets when the broker is killed or an operator takes its queue away; an assertion
is about the page of a web app whose broker is away."""


def run(
    work: Callable[[Appliance, random.Random], None],
    appliance: Appliance,
    over: threading.Event,
    seed: int,
    count: Counter[str],
    trouble: list[str],
) -> None:
    """Repeats one kind of work until told to end."""
    chance = random.Random(f"{seed}/{work.__name__}")
    while not over.is_set():
        try:
            work(appliance, chance)
        except EXPECTED:
            count[f"{work.__name__}, interrupted"] += 1
        except Exception as error:
            trouble.append(f"{work.__name__}: {type(error).__name__}: {error}"[:500])
        else:
            count[work.__name__] += 1
        over.wait(0.3)

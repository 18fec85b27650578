"""What comes and goes leaves no garbage that only a walk of Python's collector over all would find.

Such walks hold the loop for as long as there are objects, so they are made hardly ever
(`broker.process.garbage`): what refers to itself would stay.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator

import httpx
import pytest
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from management.broker_client import BrokerClient, BrokerError
from tests.amqp import raw
from tests.appliance import Appliance
from tests.conftest import _maker
from tests.fuzz.sessions import KINDS, session
from tests.listeners.certificates import Authority
from tests.turns import TurnMeter

TIMES = 14
GUEST = ("guest", "guest")


@pytest.fixture(scope="module")
def meter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TurnMeter]:
    for make in _maker("serve", tmp_path_factory.mktemp("circles")):
        authority = Authority(tmp_path_factory.mktemp("authority"))
        certificate = authority.issue("server", subject="/CN=server", san="DNS:localhost")
        appliance = make(
            start=False,
            login_failures_max=1_000_000,
            tls_cert_file=certificate,
            amqps_port=0,
            https_port=0,
        )
        meter = TurnMeter(appliance)
        appliance.start()
        yield meter


def address(appliance: Appliance) -> tuple[str, int]:
    return (appliance.host, appliance.amqp_port)


def closed_connections(appliance: Appliance, times: int) -> None:
    for _ in range(times):
        client = raw.Client.open(address(appliance))
        client.call(1, "queue.declare", queue="q", exclusive=True)
        client.call(1, "basic.consume", queue="q")
        client.close()


def cut_connections(appliance: Appliance, times: int) -> None:
    for _ in range(times):
        client = raw.Client.open(address(appliance))
        client.publish(1, "", "q", b"x")
        client.cut()


def whole_sessions(appliance: Appliance, times: int) -> None:
    """Channels, queues, publishes, consumers, transactions of all kinds but streams."""
    for number in range(times):
        if KINDS[number % len(KINDS)] != "stream":
            with socket.create_connection(address(appliance), 30) as sock:
                for piece in session(number):
                    sock.sendall(piece)
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(1 << 16):
                    pass


def deleted_queues(appliance: Appliance, times: int) -> None:
    """With messages on disk and in memory, delivered or not."""
    with raw.Client.open(address(appliance)) as client:
        for number in range(times):
            queue = f"gone-{number}"
            client.call(1, "queue.declare", queue=queue, durable=number % 2 == 0)
            client.publish(1, "", queue, b"x", delivery_mode=2)
            client.publish(1, "", queue, b"y")
            assert client.get(1, queue, no_ack=True)
            client.call(1, "queue.delete", queue=queue)
        wait_for_rounds(client)


def wait_for_rounds(client: raw.Client) -> None:
    """Rounds of the writing thread refer to stores until they are over."""
    client.call(1, "queue.declare", queue="kept", durable=True)
    client.call(1, "confirm.select")
    for number in range(1, 4):
        client.publish(1, "", "kept", b"x", delivery_mode=2)
        client.expect_confirms(1, number, number)


def used_exclusive_queues(appliance: Appliance, times: int) -> None:
    """Each connection publishes to its own queue, and leaves without a word."""
    for number in range(times):
        arguments = {"x-max-priority": 3} if number % 2 else {}
        client = raw.Client.open(address(appliance))
        client.call(1, "queue.declare", queue=f"mine-{number}", exclusive=True, arguments=arguments)
        client.publish(1, "", f"mine-{number}", b"x", delivery_mode=2)
        assert client.get(1, f"mine-{number}", no_ack=True)
        client.cut()


def deleted_streams(appliance: Appliance, times: int) -> None:
    with raw.Client.open(address(appliance)) as client:
        for number in range(times):
            queue, arguments = f"log-{number}", {"x-queue-type": "stream"}
            client.call(1, "queue.declare", queue=queue, durable=True, arguments=arguments)
            client.publish(1, "", queue, b"x")
            client.call(1, "queue.delete", queue=queue)
        wait_for_rounds(client)


def stream_consumers(appliance: Appliance, times: int) -> None:
    """Each leaves in the middle, every second one without a word."""
    with raw.Client.open(address(appliance)) as client:
        arguments = {"x-queue-type": "stream"}
        client.call(1, "queue.declare", queue="log", durable=True, arguments=arguments)
        for _ in range(3):
            client.publish(1, "", "log", b"x")
        client.fence(1)
    for number in range(times):
        reader = raw.Client.open(address(appliance))
        reader.call(1, "basic.qos", prefetch_count=1)
        reader.call(1, "basic.consume", queue="log", arguments={"x-stream-offset": "first"})
        reader.expect_message()
        reader.cut() if number % 2 else reader.close()


def web_sockets(appliance: Appliance, times: int) -> None:
    """AMQP over WebSocket: closed, cut, cut in its handshake, and no handshake at all."""
    where = (appliance.host, appliance.ws_port)
    beginnings = (b"GET / HTTP/1.1\r\nHost", b"no request at all\r\n\r\n")
    for number in range(times * 2):
        if number % 2:
            with socket.create_connection(where, 30) as sock:
                sock.sendall(beginnings[number // 2 % 2])
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(1 << 16):
                    pass
            continue
        with connect(f"ws://127.0.0.1:{where[1]}/", subprotocols=[Subprotocol("amqp")]) as peer:
            peer.send(raw.PROTOCOL_HEADER)
            peer.recv()
            if number % 4:
                peer.socket.shutdown(socket.SHUT_RDWR)


def tls_connections(appliance: Appliance, times: int) -> None:
    """Of every second one the handshake fails."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    where = (appliance.host, int(appliance.addresses["amqps"][1]))
    for number in range(times):
        with socket.create_connection(where, 30) as sock:
            if number % 2:
                sock.sendall(b"no handshake at all")
                sock.recv(1 << 16)
                continue
            with context.wrap_socket(sock) as secure:
                secure.sendall(b"".join(session(0)))
                while secure.recv(1 << 16):
                    pass


def closed_channels(appliance: Appliance, times: int) -> None:
    for _ in range(times):
        with raw.Client.open(address(appliance)) as client:
            client.send_method(1, "queue.declare", queue="not there", passive=True)
            client.expect("channel.close", 1)
            client.close()


def failed_logins(appliance: Appliance, times: int) -> None:
    for _ in range(times):
        raw.Client(address(appliance)).is_refused("guest", "wrong")


def control_calls(appliance: Appliance, times: int) -> None:
    async def go() -> None:
        for _ in range(times):
            client = BrokerClient(appliance.control_socket)
            await client.call("overview")
            with contextlib.suppress(BrokerError):
                await client.call("item", noun="queues", vhost="/", name="not there")
            with contextlib.suppress(BrokerError):
                await client.call("definitions.import", definitions=b'{"queues": 1}')
            await client.close()

    asyncio.run(go())


def left_logins(appliance: Appliance, times: int) -> None:
    """Of users who go while their password is looked at."""

    async def go() -> None:
        client = BrokerClient(appliance.control_socket)
        wrong = {"user": "guest", "password": "wrong", "peer": "127.0.0.1", "protocol": "http"}
        for number in range(times):
            asked = client.call("authenticate", login=number, **wrong)
            task = asyncio.create_task(asked)
            await asyncio.sleep(0)
            await client.call("authenticate.leave", login=number)
            # There is no answer to it.
            task.cancel()
        await client.close()

    asyncio.run(go())


def live_subscriptions(appliance: Appliance, times: int) -> None:
    """Given up by their client, or with its connection."""

    async def go() -> None:
        for number in range(times):
            client = BrokerClient(appliance.control_socket)
            followed = client.subscribe(topic="overview", as_user="guest")
            await anext(followed)
            if number % 2:
                await followed.aclose()
            await client.close()

    asyncio.run(go())


def deleted_vhosts(appliance: Appliance, times: int) -> None:
    """With a queue that had a message, a stream, and an exchange that delays."""

    async def go() -> None:
        client = BrokerClient(appliance.control_socket)
        delays = {"x-delayed-type": "direct"}
        for number in range(times):
            vhost = f"gone-{number}"
            await client.call("vhost.put", name=vhost)
            await client.call("queue.declare", vhost=vhost, name="q", durable=True)
            await client.call(
                "queue.declare",
                vhost=vhost,
                name="s",
                durable=True,
                arguments={"x-queue-type": "stream"},
            )
            await client.call(
                "exchange.declare",
                vhost=vhost,
                name="d",
                type="x-delayed-message",
                arguments=delays,
            )
            for name, key in (("", "q"), ("", "s")):
                await client.call(
                    "exchange.publish",
                    vhost=vhost,
                    name=name,
                    routing_key=key,
                    payload=b"x",
                    properties={"delivery_mode": 2},
                )
            await client.call("vhost.delete", name=vhost)
        await client.close()

    asyncio.run(go())
    with raw.Client.open(address(appliance)) as client:
        wait_for_rounds(client)


def left_scrapes(appliance: Appliance, times: int) -> None:
    """Scrapers that go before their page has come."""
    where = (appliance.host, appliance.metrics_port)
    for number in range(times):
        with socket.create_connection(where, 30) as sock:
            if number % 2:
                sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    deadline = time.monotonic() + 30
    while b"200 OK" not in scraped(where):
        assert time.monotonic() < deadline, "no scraper has a place again"


def scraped(where: tuple[str, int]) -> bytes:
    with socket.create_connection(where, 30) as sock:
        sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return sock.recv(100)


def requests(appliance: Appliance, times: int) -> None:
    for _ in range(times):
        with httpx.Client(base_url=appliance.http_url, auth=GUEST, timeout=30) as client:
            assert client.get("/api/overview").status_code == 200
            assert client.put("/api/queues/%2F/p", json={}).status_code in (201, 204)
            assert client.get("/api/queues/%2F/not there").status_code == 404


def refused_requests(appliance: Appliance, times: int) -> None:
    for _ in range(times):
        answer = httpx.get(f"{appliance.http_url}/api/queues", auth=("guest", "no"), timeout=30)
        assert answer.status_code == 401


@pytest.mark.parametrize(
    ("process", "churn"),
    [
        ("broker", closed_connections),
        ("broker", cut_connections),
        ("broker", whole_sessions),
        ("broker", deleted_queues),
        ("broker", used_exclusive_queues),
        ("broker", deleted_streams),
        ("broker", stream_consumers),
        ("broker", tls_connections),
        ("broker", web_sockets),
        ("broker", closed_channels),
        ("broker", failed_logins),
        ("broker", control_calls),
        ("broker", left_logins),
        ("broker", live_subscriptions),
        ("broker", deleted_vhosts),
        ("broker", left_scrapes),
        ("broker", requests),
        ("web", requests),
        ("web", refused_requests),
    ],
)
def test_churn_leaves_nothing_in_circles(
    meter: TurnMeter, process: str, churn: Callable[[Appliance, int], None]
) -> None:
    churn(meter.appliance, 2)
    meter.garbage(process)
    churn(meter.appliance, TIMES)
    # A library's garbage at the first use of a message's type is no churn's doing.
    found = {name: count for name, count in meter.garbage(process).items() if count >= TIMES // 2}
    assert found == {}, "\n".join(f"{c} {n}" for n, c in found.items())

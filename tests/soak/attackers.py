"""Clients that mean harm, one of each kind, all from an address of their own.

Each function makes one attempt of a second or so and cleans nothing up but its sockets; what the
broker or the web process answers is of no interest. `run` repeats one kind until told to end; all
kinds attack at the same time.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable

import httpx

from tests.amqp import raw
from tests.api.test_sessions import sign_in
from tests.appliance import Appliance
from tests.fuzz.doors import masked_frame
from tests.fuzz.mutations import mutate
from tests.fuzz.parsers import HANDSHAKE
from tests.fuzz.sessions import opening, session
from tests.hostile.sockets import BINARY, CONTINUED, TEXT, frame

FROM = "127.0.0.3"
MALLORY = "mallory"
"""A user with permissions for objects whose names begin so, who may open pages: `management`."""
PAUSE_S = (2.0, 12.0)
"""Between two attempts of one kind, chosen at random: about two a second in all."""
BASIC = b"Basic bWFsbG9yeTptYWxsb3J5"
GUEST = b"Basic Z3Vlc3Q6Z3Vlc3Q="
SLOW = b"%28%28%3F%3Aa%7Cb%7Cab%7Cba%29%3F%29%7B1000%7D%24"


class Attempt:
    """Sockets of one attempt, all closed at its end."""

    def __init__(self, appliance: Appliance, chance: random.Random) -> None:
        self.appliance = appliance
        self.chance = chance
        self.sockets: list[socket.socket] = []

    def connect(self, port: int) -> socket.socket:
        peer = socket.create_connection(("127.0.0.1", port), 5, source_address=(FROM, 0))
        self.sockets.append(peer)
        peer.settimeout(1)
        return peer

    def amqp(self) -> socket.socket:
        """Signed in, channel 1 open."""
        peer = self.connect(self.appliance.amqp_port)
        peer.sendall(b"".join(opening(user=MALLORY)))
        got = b""
        while b"\x00\x14\x00\x0b" not in got and (part := peer.recv(65536)):
            got += part
        return peer

    def web(self, head: bytes, body: bytes = b"") -> socket.socket:
        """A request; the answer is left."""
        peer = self.connect(self.appliance.http_port)
        peer.sendall(head.replace(b"\n", b"\r\n") + body)
        return peer

    def close(self) -> None:
        for peer in self.sockets:
            with contextlib.suppress(OSError):
                peer.close()


def unread_returns(attempt: Attempt) -> None:
    peer = attempt.amqp()
    data = raw.publish(1, "", "nowhere", bytes(100_000), mandatory=True)
    for _ in range(100):
        peer.sendall(data)


def wrong_passwords(attempt: Attempt) -> None:
    for number in range(20):
        attempt.web(
            b"GET /api/whoami HTTP/1.1\nHost: localhost\nAuthorization: Basic %s\n\n"
            % (b"Z3Vlc3Q6d3Jvb" + b"%02dA=" % number)
        )
    peer = attempt.connect(attempt.appliance.amqp_port)
    pieces = opening()
    peer.sendall(pieces[0] + raw.start_ok(response=raw.plain_response("guest", "wrong")))


def slow_bodies(attempt: Attempt) -> None:
    for _ in range(10):
        attempt.web(
            b"POST /api/definitions HTTP/1.1\nHost: localhost\nAuthorization: %s\n"
            b"Content-Length: 100001\n\n" % BASIC,
            bytes(100_000),
        )
    time.sleep(0.5)


def pipelining(attempt: Attempt) -> None:
    for _ in range(4):
        attempt.web(b"GET /health HTTP/1.1\nHost: localhost\n\n" * 3000)


def pings(attempt: Attempt) -> None:
    for port in (attempt.appliance.ws_port, attempt.appliance.http_port):
        peer = attempt.connect(port)
        peer.sendall(HANDSHAKE)
        peer.recv(4096)
        for _ in range(50):
            peer.sendall(masked_frame(attempt.chance, b"x" * 100, 0x89) * 20)


def unfinished(attempt: Attempt) -> None:
    """On both WebSocket doors: a frame that does not end, frames and fragments of one byte, and a
    compressed frame that nobody agreed on."""
    pieces = (
        frame(BINARY, b"AMQP" + bytes(200_000), length=1 << 20),
        frame(BINARY, b"x") * 20_000,
        frame(BINARY, b"x", fin=False) + frame(CONTINUED, b"x", fin=False) * 20_000,
        frame(BINARY, bytes(1000), compressed=True),
    )
    for port in (attempt.appliance.ws_port, attempt.appliance.http_port):
        for piece in pieces:
            peer = attempt.connect(port)
            peer.sendall(HANDSHAKE)
            peer.recv(4096)
            with contextlib.suppress(OSError):  # refused before all of it was sent
                peer.sendall(piece)


def live_subscriptions(attempt: Attempt) -> None:
    """More subscriptions on live sockets than a user may have, and JSON that is none."""
    appliance = attempt.appliance
    with httpx.Client(base_url=appliance.http_url, timeout=5) as client:
        sign_in(client, MALLORY, MALLORY)
        cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    host = f"127.0.0.1:{appliance.http_port}"
    for _ in range(3):
        peer = attempt.web(
            f"GET /live/ HTTP/1.1\nHost: {host}\nOrigin: http://{host}\nCookie: {cookie}\n"
            "Upgrade: websocket\nConnection: Upgrade\nSec-WebSocket-Version: 13\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\n\n".encode()
        )
        peer.recv(4096)
        for number in range(100):
            told = {"type": "subscribe", "topic": "queues", "id": number}
            peer.sendall(frame(TEXT, json.dumps(told).encode()))
        peer.sendall(frame(TEXT, b'{"type":"subscribe","topic":"overview","id":1e400}'))
        peer.sendall(frame(TEXT, b'{"type":' + b"[" * 50_000))
        peer.recv(1 << 16)


def lies_about_hosts(attempt: Attempt) -> None:
    """Hosts that are none, and guest who says that a proxy brought it from this machine."""
    for host in (b"x/y", b"under_score", b"[::1", b"a" * 300, b"localhost:99999"):
        attempt.web(b"GET / HTTP/1.1\nHost: %s\n\n" % host)
    for told in (b"127.0.0.1", b"::1", b"1.2.3.4, 127.0.0.1", b"x" * 1000, b"1," * 2000):
        attempt.web(
            b"GET /api/overview HTTP/1.1\nHost: localhost\nAuthorization: %s\n"
            b"X-Forwarded-For: %s\n\n" % (GUEST, told)
        )


def deep_json(attempt: Attempt) -> None:
    for body in (b"[" * 100_000, b'{"a":' * 50_000, b'{"queues":[' + b"[" * 5000, b"9" * 90_000):
        for path in (b"PUT /api/queues/%2F/mallory", b"POST /api/definitions"):
            attempt.web(
                b"%s HTTP/1.1\nHost: localhost\nAuthorization: %s\nContent-Length: %d\n\n"
                % (path, GUEST, len(body)),
                body,
            )


def patterns(attempt: Attempt) -> None:
    for number in range(8):
        attempt.web(
            b"GET /api/queues?page=1&use_regex=true&name=%s%d HTTP/1.1\nHost: localhost\n"
            b"Authorization: %s\n\n" % (SLOW, number, GUEST)
        )


def topic_bindings(attempt: Attempt) -> None:
    peer = attempt.amqp()
    queue = "mallory"
    peer.sendall(raw.method(1, "queue.declare", queue=queue, exclusive=True))
    exchange = "mallory.topic"
    peer.sendall(
        raw.method(1, "exchange.declare", exchange=exchange, type="topic", auto_delete=True)
    )
    for number in range(200):
        key = ".".join(attempt.chance.choice(("#", "*", "a")) for _ in range(number % 40 + 1))
        peer.sendall(
            raw.method(1, "queue.bind", queue=queue, exchange=exchange, routing_key=key[:255])
        )
    for _ in range(20):
        peer.sendall(raw.publish(1, exchange, ".".join("a" * 120), b""))
    with contextlib.suppress(TimeoutError):
        while peer.recv(1 << 16):
            pass


def cookies(attempt: Attempt) -> None:
    for cookie in (b'a="' + b"\\" * 50_000, b"a=b;" * 10_000, b"sessionid=" + b"x" * 60_000):
        attempt.web(b"GET / HTTP/1.1\nHost: localhost\nCookie: %s\n\n" % cookie)


def nested_tables(attempt: Attempt) -> None:
    table = b"F\x00\x00\x00\x00"
    for _ in range(2000):
        inner = b"\x01a" + table
        table = b"F" + struct.pack(">I", len(inner)) + inner
        if len(table) > 12_000:
            break
    header = struct.pack(">HHQH", 60, 0, 0, 1 << 13) + table[1:]
    peer = attempt.amqp()
    publish = raw.method(1, "basic.publish", routing_key="mallory")
    peer.sendall(publish + raw.frame(raw.HEADER, 1, header))


def noise(attempt: Attempt) -> None:
    appliance = attempt.appliance
    for port in (appliance.amqp_port, appliance.ws_port, appliance.metrics_port):
        for _ in range(5):
            peer = attempt.connect(port)
            peer.sendall(mutate(attempt.chance, b"".join(session(attempt.chance.randrange(99)))))


def silence(attempt: Attempt) -> None:
    """Connections that send nothing, or stop in the middle of a frame."""
    for port in (attempt.appliance.amqp_port, attempt.appliance.http_port):
        for _ in range(20):
            attempt.connect(port).sendall(b"AMQP\x00"[: attempt.chance.randrange(6)])
    time.sleep(0.5)


def many_objects(attempt: Attempt) -> None:
    peer = attempt.amqp()
    for number in range(500):
        peer.sendall(raw.method(1, "queue.declare", queue=f"mallory.{number}", exclusive=True))
        peer.sendall(raw.method(1, "basic.consume", queue=f"mallory.{number}", no_ack=True))
    for channel in range(2, 60):
        peer.sendall(raw.method(channel, "channel.open"))
    with contextlib.suppress(TimeoutError):
        while peer.recv(1 << 16):
            pass


def open_transactions(attempt: Attempt) -> None:
    peer = attempt.amqp()
    peer.sendall(raw.method(1, "tx.select"))
    data = raw.publish(1, "", "mallory", os.urandom(50_000))
    for _ in range(200):
        peer.sendall(data)


EXPECTED = (OSError, AssertionError, httpx.HTTPError)
"""An assertion is about the sign-in page of a web app whose broker is away."""

KINDS: dict[str, Callable[[Attempt], None]] = {
    each.__name__: each
    for each in (
        *(unread_returns, wrong_passwords, slow_bodies, pipelining, pings, deep_json, patterns),
        *(topic_bindings, cookies, nested_tables, noise, silence, many_objects),
        *(open_transactions, unfinished, live_subscriptions, lies_about_hosts),
    )
}


def run(
    name: str, appliance: Appliance, over: threading.Event, seed: int, count: Counter[str]
) -> None:
    """Repeats one kind until told to end, once at least. That the broker is gone for a while, or
    cuts an attacker off, is expected."""
    chance = random.Random(f"{seed}/{name}")
    while True:
        attempt = Attempt(appliance, chance)
        try:
            KINDS[name](attempt)
        except EXPECTED:
            count[f"{name}, cut off"] += 1
        else:
            count[name] += 1
        finally:
            attempt.close()
        if over.wait(chance.uniform(*PAUSE_S)):
            return

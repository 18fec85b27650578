"""An attacker: a user with rights in the virtual host `mallory`, and a stranger's sockets."""

from __future__ import annotations

import base64
import contextlib
import http.client
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import httpx

from broker.settings.config import Config
from tests.amqp import raw
from tests.appliance import Appliance

MALLORY = "mallory"
"""User, password and virtual host."""
PROXY = "127.0.0.5"
"""The address of a proxy that is trusted, on AMQP's ports and on the web port."""
DIGITS = b"0000000"
"""Stands in a template for a number of seven digits."""


class Attacker:
    """`share` is of each limit's default; `seconds` is how long a flood lasts."""

    def __init__(self, appliance: Appliance, share: float, seconds: float) -> None:
        self.appliance = appliance
        self.share = share
        self.seconds = seconds

    def limit(self, setting: str) -> int:
        """What the appliance was started with."""
        return int(self.appliance.settings.get(setting, getattr(Config(), setting)))

    def count(self, whole: int) -> int:
        return max(20, int(whole * self.share))

    def rounds(self) -> Iterator[int]:
        """Numbers, for as long as a flood lasts; one at least."""
        ends = time.monotonic() + self.seconds
        number = 0
        while number == 0 or time.monotonic() < ends:
            yield number
            number += 1

    def amqp(self, virtual_host: str = MALLORY, user: str = MALLORY, **more: Any) -> raw.Client:
        """Signed in, with channel 1 open."""
        address = (self.appliance.host, self.appliance.amqp_port)
        return raw.Client.open(
            address, user=user, password=user, virtual_host=virtual_host, timeout=600, **more
        )

    def connect(self, door: str) -> socket.socket:
        """A plain socket to a port."""
        host, port = self.appliance.addresses[door]
        return socket.create_connection((host, port), 60)

    def api(self, user: str = MALLORY) -> httpx.Client:
        return httpx.Client(base_url=self.appliance.http_url, auth=(user, user), timeout=600)


def basic(user: str, password: str) -> bytes:
    return b"Basic " + base64.b64encode(f"{user}:{password}".encode())


def request(line: str, *headers: bytes, who: bytes = b"") -> bytes:
    """The head of an HTTP request."""
    lines = [f"{line} HTTP/1.1".encode(), b"Host: localhost", *headers]
    if who:
        lines.append(b"Authorization: " + who)
    return b"\r\n".join([*lines, b"", b""])


def status(sock: socket.socket) -> int:
    """Of the next answer, which is read; 0 if the connection ended."""
    answer = http.client.HTTPResponse(sock)
    try:
        answer.begin()
        answer.read()
    except (OSError, http.client.HTTPException):
        return 0
    return answer.status


def told(count: Counter[Any]) -> str:
    """`3 × 401, 2 × 503`; a 0 is a connection that was cut."""
    return ", ".join(
        f"{many:,} × {'cut off' if what == 0 else what}" for what, many in sorted(count.items())
    )


def numbered(template: bytes, count: int, step: int = 1000) -> Iterator[bytes]:
    """The template with each number in place of its `DIGITS`, so many in a piece."""
    assert DIGITS in template
    for begin in range(0, count, step):
        numbers = range(begin, min(begin + step, count))
        yield b"".join(template.replace(DIGITS, b"%07d" % number) for number in numbers)


def sends_on(client: raw.Client, pieces: Iterable[bytes]) -> threading.Thread:
    """Sends them from a thread, until it is cut off."""

    def send() -> None:
        with contextlib.suppress(OSError):
            for piece in pieces:
                client.send(piece)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    return thread


def until_refused(client: raw.Client, pieces: Iterable[bytes], last: str = "basic.qos-ok") -> str:
    """Sends everything; the text of the close, or that nothing was refused once `last` comes."""

    def and_last() -> Iterator[bytes]:
        yield from pieces
        yield raw.method(1, "basic.qos")

    sends_on(client, and_last())
    while True:
        frame = client.read_frame()
        if frame.type != raw.METHOD:
            continue
        method = raw.decode_method(frame.payload, frame.channel)
        if method.name in ("channel.close", "connection.close"):
            return f"{method.reply_code} {method.reply_text}"
        if method.name == last:
            return "nothing was refused"


def drain(sock: socket.socket, seconds: float = 2.0) -> bytes:
    """What comes, until nothing does for so long or it ends."""
    received = b""
    sock.settimeout(seconds)
    with contextlib.suppress(OSError):
        while data := sock.recv(1 << 18):
            received = (received + data)[-4096:]
    return received

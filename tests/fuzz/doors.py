"""The ways in, each with an envelope of its own that may be broken, too."""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.appliance import Appliance
from tests.fuzz.mutations import mutate

PROXY_FROM = "127.0.0.2"
"""Where connections with a PROXY header come from."""
PATIENCE_S = 120.0
_IP_BIND_ADDRESS_NO_PORT = 24  # <linux/in.h>


class Peer:
    """A connection that sends, throws away what it gets, and waits for the other side to end it:
    with `finish`, or with `leave` and then `gone` until that is true. Both raise TimeoutError if
    the end does not come within PATIENCE_S."""

    def __init__(self, address: tuple[str, int], source: str = "") -> None:
        self.sent = 0
        self.socket = socket.socket()
        self.socket.settimeout(PATIENCE_S)
        if source:
            # The port is chosen when it connects: those of the last minute are not free here.
            self.socket.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
            self.socket.bind((source, 0))
        self.socket.connect(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.ended = False
        self.until = 0.0

    def send(self, data: bytes) -> None:
        if self.ended:
            return
        try:
            # What comes is taken first: else both sides could wait for each other.
            self._take()
            self.socket.settimeout(PATIENCE_S)
            while data:
                self.socket.settimeout(0.2)
                try:
                    sent = self.socket.send(data)
                except TimeoutError:
                    self._take()
                    continue
                self.sent += sent
                data = data[sent:]
        except OSError:
            self.ended = True

    def _take(self) -> None:
        self.socket.setblocking(False)
        try:
            while self.socket.recv(1 << 18):
                pass
        except (BlockingIOError, ssl.SSLWantReadError):
            pass

    def leave(self) -> None:
        """Ends our half."""
        self.until = time.monotonic() + PATIENCE_S
        if not self.ended:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(self.socket, socket.SHUT_WR)

    def gone(self) -> bool:
        """Whether the other half has ended; the socket is closed then. Does not wait."""
        self.socket.setblocking(False)
        try:
            while self.socket.recv(1 << 18):
                pass
        except (BlockingIOError, ssl.SSLWantReadError):
            if time.monotonic() < self.until:
                return False
            self.socket.close()
            raise TimeoutError from None
        except OSError:
            pass
        self.socket.close()
        return True

    def finish(self) -> bytes:
        """Ends our half and waits for the other; returns the last that came."""
        said = b""
        try:
            self.socket.settimeout(PATIENCE_S)
            if not self.ended:
                socket.socket.shutdown(self.socket, socket.SHUT_WR)
            while chunk := self.socket.recv(1 << 18):
                said = (said + chunk)[-(1 << 20) :]
        except TimeoutError:
            raise
        except OSError:
            pass
        finally:
            self.socket.close()
        return said


class TLSPeer(Peer):
    def __init__(self, address: tuple[str, int], context: ssl.SSLContext) -> None:
        super().__init__(address)
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost")


class WebSocketPeer(Peer):
    """Sends masked binary messages (RFC 6455); with `chance` some frames are broken."""

    def __init__(self, address: tuple[str, int], chance: random.Random, broken: bool) -> None:
        super().__init__(address)
        self._chance = chance
        self._broken = broken
        request = (
            b"GET /fuzz HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: amqp\r\n\r\n"
        )
        if broken and chance.random() < 0.3:
            super().send(mutate(chance, request))
            return
        super().send(request)
        self.socket.settimeout(PATIENCE_S)  # `send` leaves a shorter one
        head = b""
        while b"\r\n\r\n" not in head:
            part = self.socket.recv(4096) if not self.ended else b""
            if not part:
                self.ended = True
                return
            head += part

    def send(self, data: bytes) -> None:
        opcode = 0x82
        if self._broken and self._chance.random() < 0.1:
            opcode = self._chance.choice((0x00, 0x02, 0x80, 0x81, 0x88, 0x89, 0x8A, 0xC2, 0x83))
        whole = masked_frame(self._chance, data, opcode)
        if self._broken and self._chance.random() < 0.05:
            whole = mutate(self._chance, whole)
        super().send(whole)


def masked_frame(chance: random.Random, data: bytes, opcode: int = 0x82) -> bytes:
    """A client's WebSocket frame; `opcode` with its bits FIN and RSV."""
    size = len(data)
    if size < 126:
        head = struct.pack(">BB", opcode, 0x80 | size)
    elif size < 1 << 16:
        head = struct.pack(">BBH", opcode, 0xFE, size)
    else:
        head = struct.pack(">BBQ", opcode, 0xFF, size)
    mask = chance.randbytes(4)
    repeated = (mask * (size // 4 + 1))[:size]
    masked = (int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")).to_bytes(size, "big")
    return head + mask + masked


@dataclass
class Door:
    """A name, and how to come in; `broken` says whether the envelope may be."""

    name: str
    open: Callable[[random.Random, bool], Peer]


def doors(appliance: Appliance, context: ssl.SSLContext) -> list[Door]:
    """All of an appliance that `start` of `tests.fuzz.runs` has started."""
    host = "127.0.0.1"
    amqp, ws, web = (
        (host, port) for port in (appliance.amqp_port, appliance.ws_port, appliance.http_port)
    )
    amqps = (host, int(appliance.addresses["amqps"][1]))
    wss = (host, int(appliance.addresses["wss"][1]))

    def tls(chance: random.Random, broken: bool) -> Peer:
        if not broken:
            return TLSPeer(amqps, context)
        # The handshake's own bytes, and then noise where records are due.
        peer = Peer(chance.choice((amqps, wss)))
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        hello = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        try:
            hello.do_handshake()
        except ssl.SSLWantReadError:
            peer.send(mutate(chance, outgoing.read()))
        return peer

    def proxied(chance: random.Random, broken: bool) -> Peer:
        peer = Peer(amqp, PROXY_FROM)
        header = (
            b"PROXY TCP4 10.0.0.1 10.0.0.2 1000 5672\r\n"
            if chance.random() < 0.5
            else b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\x0a\0\0\x01\x0a\0\0\x02\x03\xe8\x16\x28"
        )
        peer.send(mutate(chance, header) if broken else header)
        return peer

    return [
        Door("tcp", lambda chance, broken: Peer(amqp)),
        Door("tls", tls),
        Door("proxy", proxied),
        Door("websocket", lambda chance, broken: WebSocketPeer(ws, chance, broken)),
        Door("web port", lambda chance, broken: WebSocketPeer(web, chance, broken)),
    ]

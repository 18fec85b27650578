"""AMQP over WebSocket on the web port: bytes are handed to the broker's private socket and back.

The broker believes the PROXY v2 header on that socket, and only there, so it knows the browser's
own address. What the browser gets is whole AMQP frames, one or more per binary message; what it
sends may be cut anywhere. Until the broker accepts its login, the browser may send as little as on
the broker's own ports (`management.websocket_protocol`).
"""

import asyncio
import contextlib
import ipaddress
import logging
import socket
import struct
from pathlib import Path
from typing import Any

from management.hosts import refuse
from management.paths import Receive, Scope, Send
from management.peer import peer_of
from management.websocket_protocol import signed_in

log = logging.getLogger(__name__)

PROXY_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
READ_SIZE = 256 * 1024
FRAME_MAX = 16 * 1024 * 1024
UNSUPPORTED_DATA = 1003
TUNE = b"\x01" + struct.pack(">HH", 10, 30)
"""Type of a method's frame, class and method of `connection.tune`."""


def proxy_header(scope: Scope) -> bytes:
    """PROXY protocol version 2 for the browser's peer and our own address (PROXY, section 2.2).

    A peer that is no IP address is sent as LOCAL without addresses.
    """
    try:
        source = ipaddress.ip_address(peer_of(scope))
        host, port = scope.get("server") or ("", 0)
        destination = ipaddress.ip_address(host)
    except ValueError:
        return PROXY_SIGNATURE + struct.pack(">BBH", 0x20, 0x00, 0)
    if source.version != destination.version:
        source, destination = _as_ipv6(source), _as_ipv6(destination)
    family = 0x11 if source.version == 4 else 0x21
    source_port = scope["client"][1] if scope.get("client") else 0
    addresses = source.packed + destination.packed + struct.pack(">HH", source_port, port or 0)
    return PROXY_SIGNATURE + struct.pack(">BBH", 0x21, family, len(addresses)) + addresses


def _as_ipv6(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> ipaddress.IPv6Address:
    if address.version == 6:
        return address
    return ipaddress.IPv6Address(b"\0" * 10 + b"\xff\xff" + address.packed)


class WholeFrames:
    """Gathers a byte stream of the broker into pieces that end at the end of an AMQP frame.

    A frame is seven octets (type, channel, payload size), the payload and the end octet; the
    broker's answer to a wrong protocol header is eight octets that begin with `AMQP`.
    """

    def __init__(self) -> None:
        self._rest = b""
        self.logged_in = False
        """Whether `connection.tune` came, with which the broker accepts a login."""

    def feed(self, data: bytes) -> bytes:
        """As much as is whole now; what is left waits for more. Raises `ValueError` if lost."""
        data = self._rest + data if self._rest else data
        end = 0
        while len(data) - end >= 7:
            if data[end] == ord("A"):
                size = 8
            else:
                payload = int.from_bytes(data[end + 3 : end + 7], "big")
                if payload > FRAME_MAX:
                    raise ValueError(f"frame of {payload} bytes from the broker")
                size = payload + 8
            if len(data) - end < size:
                break
            if data[end : end + 1] + data[end + 7 : end + 11] == TUNE:
                self.logged_in = True
            end += size
        self._rest = data[end:]
        return data[:end]


class Relay:
    """ASGI application for AMQP WebSockets: any path, optional sub-protocol `amqp`, binary only."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # No transport: one that cannot write any more forgets what it could still read, and a
        # broker that has closed may have said why.
        try:
            broker = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:  # no descriptor is left
            log.info("AMQP WebSocket refused: %s", error)
            await refuse(scope, receive, send, 503, "Too many connections. Try again soon.\n")
            return
        with broker:
            broker.setblocking(False)
            try:
                await asyncio.get_running_loop().sock_connect(broker, str(self.path))
            except OSError as error:
                log.info("AMQP WebSocket refused, the broker is away: %s", error)
                await refuse(scope, receive, send, 503, "The broker is away. Try again soon.\n")
                return
            _small_buffers(broker)
            await receive()
            subprotocols = scope.get("subprotocols", ())
            offered = [name for name in subprotocols if name.lower().startswith("amqp")]
            accept: dict[str, Any] = {"type": "websocket.accept"}
            if offered:
                accept["subprotocol"] = offered[0]
            await send(accept)
            upward = asyncio.ensure_future(self._to_broker(receive, broker, proxy_header(scope)))
            downward = asyncio.ensure_future(self._to_browser(scope, broker, send))
            try:
                await asyncio.wait({upward, downward}, return_when=asyncio.FIRST_COMPLETED)
                code = upward.result() if upward.done() else 1000
            finally:
                upward.cancel()
                downward.cancel()
                await asyncio.gather(upward, downward, return_exceptions=True)
            if code:
                with contextlib.suppress(Exception):
                    await send({"type": "websocket.close", "code": code})

    async def _to_broker(self, receive: Receive, broker: socket.socket, data: bytes) -> int:
        """Sends `data`, then what comes. The close code to answer with; 0 when the browser is
        gone."""
        loop = asyncio.get_running_loop()
        takes = True
        while True:
            if takes:
                try:
                    await loop.sock_sendall(broker, data)
                except OSError:
                    # It has closed. The browser still gets what it said before.
                    takes = False
            message = await receive()
            if message["type"] == "websocket.disconnect":
                return 0
            received: bytes | None = message.get("bytes")
            if received is None:
                return UNSUPPORTED_DATA
            data = received

    async def _to_browser(self, scope: Scope, broker: socket.socket, send: Send) -> None:
        loop = asyncio.get_running_loop()
        frames = WholeFrames()
        is_told = False
        while data := await loop.sock_recv(broker, READ_SIZE):
            whole = frames.feed(data)
            if frames.logged_in and not is_told:
                is_told = True
                signed_in(scope)
            if whole:
                await send({"type": "websocket.send", "bytes": whole})


def _small_buffers(broker: socket.socket) -> None:
    """A browser that does not read must be felt by the broker soon, not after megabytes."""
    with contextlib.suppress(OSError):
        broker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, READ_SIZE)

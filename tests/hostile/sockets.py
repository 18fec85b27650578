"""WebSockets that obey no rules: frames made by hand over a plain socket."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

from tests.amqp import raw
from tests.appliance import Appliance

BINARY, CONTINUED, TEXT, CLOSE, PING = 2, 0, 1, 8, 9


def login(user: str = "guest") -> bytes:
    """All that a user, whose password is its name, sends until channel 1 is open."""
    return (
        raw.PROTOCOL_HEADER
        + raw.start_ok(response=raw.plain_response(user, user))
        + raw.method(0, "connection.tune-ok", channel_max=9, frame_max=131072, heartbeat=0)
        + raw.method(0, "connection.open", virtual_host="/")
        + raw.method(1, "channel.open")
    )


LOGIN = login()
CHANNEL_OPEN_OK = struct.pack(">HH", 20, 11)


def frame(
    opcode: int, data: bytes = b"", *, fin: bool = True, length: int = -1, compressed: bool = False
) -> bytes:
    """A client's frame with a mask of zeros; `length` is what its head says, if not the truth."""
    size = len(data) if length < 0 else length
    head = bytes([fin << 7 | compressed << 6 | opcode])
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 1 << 16:
        head += bytes([0x80 | 126]) + struct.pack(">H", size)
    else:
        head += bytes([0x80 | 127]) + struct.pack(">Q", size)
    return head + bytes(4) + data


def opened(
    leveret: Appliance, door: str, path: str = "/amqp", source: str = "", **headers: str
) -> tuple[socket.socket, bytes]:
    """A WebSocket at `ws`, the broker's port, or `http`, the web port; and the answer's head.
    `source` is the client's own address."""
    host, port = leveret.addresses[door]
    sock = socket.create_connection((host, port), 30, (source, 0) if source else None)
    lines = {
        "Host": f"{host}:{port}",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    sock.sendall(f"GET {path} HTTP/1.1\r\n{head}\r\n".encode())
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        answer += sock.recv(1)
    assert answer.startswith(b"HTTP/1.1 101"), answer
    return sock, answer


def logged_in(
    leveret: Appliance, door: str, *, user: str = "guest", source: str = ""
) -> socket.socket:
    """A WebSocket with an open AMQP connection of the user, and its channel 1."""
    sock, _ = opened(leveret, door, source=source)
    sock.sendall(frame(BINARY, login(user)))
    answer = b""
    while CHANNEL_OPEN_OK not in answer:
        data = sock.recv(1 << 16)
        assert data, answer
        answer += data
    return sock


def last_words(sock: socket.socket) -> bytes:
    """Everything until the end of the connection, which may be a reset."""
    received = b""
    sock.settimeout(30)
    with contextlib.suppress(ConnectionError):
        while data := sock.recv(1 << 16):
            received += data
    return received


class Flood:
    """Sends the same bytes on several sockets, each from a thread of its own, until all are sent or
    none are taken for two seconds; if `endless`, over and over until it is stopped."""

    def __init__(self, socks: list[socket.socket], data: bytes, *, endless: bool = False) -> None:
        self._socks = socks
        self._endless = endless
        self._threads = [threading.Thread(target=self._send, args=(s, data)) for s in socks]
        for sock in socks:
            sock.settimeout(60 if endless else 2)
        for thread in self._threads:
            thread.start()

    def _send(self, sock: socket.socket, data: bytes) -> None:
        with contextlib.suppress(OSError):
            sock.sendall(data)
            while self._endless:
                sock.sendall(data)

    @property
    def alive(self) -> int:
        """Sockets that still send."""
        return sum(thread.is_alive() for thread in self._threads)

    def wait(self) -> None:
        for thread in self._threads:
            thread.join()

    def stop(self) -> None:
        for sock in self._socks:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self.wait()

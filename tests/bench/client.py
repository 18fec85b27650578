"""A small blocking AMQP 0-9-1 client that speaks plain bytes, for benchmarks and crash tests.

It shares no code with the broker, so that a fault in the broker's codec cannot hide in it.
"""

from __future__ import annotations

import select
import socket
import struct
from dataclasses import dataclass

FRAME_END = b"\xce"


class ConnectionLost(Exception):
    """The broker went away, or closed the connection or channel; the text says which."""


def short(text: str) -> bytes:
    """An AMQP short string."""
    data = text.encode()
    return bytes([len(data)]) + data


def table(fields: dict[str, str]) -> bytes:
    """A field table of long strings."""
    pairs = [
        short(name) + b"S" + struct.pack(">I", len(text.encode())) + text.encode()
        for name, text in fields.items()
    ]
    return struct.pack(">I", sum(map(len, pairs))) + b"".join(pairs)


def method(channel: int, class_id: int, method_id: int, arguments: bytes = b"") -> bytes:
    """A whole method frame."""
    head = struct.pack(">BHIHH", 1, channel, 4 + len(arguments), class_id, method_id)
    return head + arguments + FRAME_END


def content(
    channel: int, body: bytes, persistent: bool, frame_max: int, message_id: str = ""
) -> bytes:
    """Header and body frames of a message with the properties delivery-mode and message-id."""
    flags = 0x1080 if message_id else 0x1000
    header = struct.pack(">HHQHB", 60, 0, len(body), flags, 2 if persistent else 1)
    if message_id:
        header += short(message_id)
    frames = [struct.pack(">BHI", 2, channel, len(header)), header, FRAME_END]
    step = frame_max - 8
    for start in range(0, len(body), step):
        piece = body[start : start + step]
        frames += [struct.pack(">BHI", 3, channel, len(piece)), piece, FRAME_END]
    return b"".join(frames)


def publish(
    exchange: str,
    routing_key: str,
    body: bytes,
    persistent: bool,
    frame_max: int = 131072,
    message_id: str = "",
) -> bytes:
    """basic.publish with its content, on channel 1."""
    start = method(1, 60, 40, b"\0\0" + short(exchange) + short(routing_key) + b"\0")
    return start + content(1, body, persistent, frame_max, message_id)


@dataclass
class Delivery:
    """One basic.deliver or basic.get-ok."""

    consumer_tag: str
    delivery_tag: int
    redelivered: bool
    body: bytes
    properties: bytes = b""

    @property
    def message_id(self) -> str:
        """The message-id, if the properties are just delivery-mode and message-id; else empty."""
        properties = self.properties
        if properties[:2] != b"\x10\x80" or len(properties) < 4:
            return ""
        if properties[3] != len(properties) - 4:
            return ""
        return properties[4:].decode("ascii", "replace")


@dataclass
class Confirm:
    """One basic.ack or basic.nack from the broker."""

    delivery_tag: int
    multiple: bool
    ack: bool


@dataclass
class Method:
    """Any other method."""

    class_id: int
    method_id: int
    arguments: bytes


Event = Delivery | Confirm | Method


class Client:
    """One connection with one channel, number 1.

    Everything blocks; `timeout` seconds without a byte raise ConnectionLost.
    """

    def __init__(
        self,
        port: int,
        timeout: float = 30.0,
        user: str = "guest",
        password: str = "guest",
        frame_max: int = 131072,
    ) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray()
        self.events: list[Event] = []
        self._delivery: tuple[str, int, bool] | None = None
        self._size = 0
        self._properties = b""
        self._body = bytearray()
        self.send(b"AMQP\0\0\x09\x01")
        self.wait(10, 10)
        response = b"\0" + user.encode() + b"\0" + password.encode()
        response = struct.pack(">I", len(response)) + response
        self.send(method(0, 10, 11, b"\0\0\0\0" + short("PLAIN") + response + short("en_US")))
        channel_max, offered, _ = struct.unpack(">HIH", self.wait(10, 30))
        self.frame_max = min(offered or frame_max, frame_max)
        self.send(method(0, 10, 31, struct.pack(">HIH", channel_max, self.frame_max, 0)))
        self.send(method(0, 10, 40, short("/") + b"\0\0"))
        self.wait(10, 41)
        self.send(method(1, 20, 10, b"\0"))
        self.wait(20, 11)

    def send(self, data: bytes) -> None:
        """Sends bytes as they are."""
        try:
            self.socket.sendall(data)
        except OSError as error:
            raise ConnectionLost(str(error)) from error

    def receive(self, timeout: float | None = None) -> bool:
        """Reads once; what became whole goes to `events`. False: nothing within `timeout`."""
        if timeout is not None and not select.select([self.socket], [], [], timeout)[0]:
            return False
        try:
            data = self.socket.recv(1 << 18)
        except TimeoutError:
            raise ConnectionLost("no answer in time") from None
        except OSError as error:
            raise ConnectionLost(str(error)) from error
        if not data:
            raise ConnectionLost("end of stream")
        self.buffer += data
        self._parse()
        return True

    def _parse(self) -> None:
        buffer, at = self.buffer, 0
        while len(buffer) - at >= 8:
            kind, _, size = struct.unpack_from(">BHI", buffer, at)
            if len(buffer) - at < 8 + size:
                break
            if buffer[at + 7 + size] != 0xCE:
                raise ConnectionLost(f"frame of type {kind}, {size} bytes, does not end with 0xCE")
            self._frame(kind, bytes(buffer[at + 7 : at + 7 + size]))
            at += 8 + size
        del buffer[:at]

    def _frame(self, kind: int, payload: bytes) -> None:
        if kind == 1:
            self._method(payload)
        elif kind == 2:
            (self._size,) = struct.unpack_from(">Q", payload, 4)
            self._properties = payload[12:]
            self._body = bytearray()
            if not self._size:
                self._complete()
        elif kind == 3:
            self._body += payload
            if len(self._body) > self._size:
                raise ConnectionLost(f"body of {len(self._body)} bytes, announced {self._size}")
            if len(self._body) == self._size:
                self._complete()

    def _method(self, payload: bytes) -> None:
        class_id, method_id = struct.unpack_from(">HH", payload)
        arguments = payload[4:]
        if (class_id, method_id) == (60, 60):
            length = arguments[0]
            (tag,) = struct.unpack_from(">Q", arguments, 1 + length)
            name = arguments[1 : 1 + length].decode()
            self._delivery = (name, tag, bool(arguments[9 + length] & 1))
        elif (class_id, method_id) == (60, 71):
            self._delivery = ("", struct.unpack_from(">Q", arguments)[0], bool(arguments[8] & 1))
        elif class_id == 60 and method_id in (80, 120):
            tag, flags = struct.unpack_from(">QB", arguments)
            self.events.append(Confirm(tag, bool(flags & 1), method_id == 80))
        elif (class_id, method_id) in ((10, 50), (20, 40)):
            code, length = struct.unpack_from(">HB", arguments)
            kind = "connection" if class_id == 10 else "channel"
            text = arguments[3 : 3 + length].decode()
            raise ConnectionLost(f"the broker closed the {kind}: {code} {text}")
        else:
            self.events.append(Method(class_id, method_id, arguments))

    def _complete(self) -> None:
        if self._delivery is not None:
            tag, number, redelivered = self._delivery
            body = bytes(self._body)
            self.events.append(Delivery(tag, number, redelivered, body, self._properties))
        self._delivery = None

    def wait(self, class_id: int, method_id: int) -> bytes:
        """Reads until this method comes; returns its arguments. Other events stay queued."""
        while True:
            for index, event in enumerate(self.events):
                if not isinstance(event, Method):
                    continue
                if event.class_id == class_id and event.method_id == method_id:
                    del self.events[index]
                    return event.arguments
            self.receive()

    def declare_queue(
        self,
        name: str,
        durable: bool = True,
        passive: bool = False,
        arguments: dict[str, str] | None = None,
    ) -> int:
        """Declares a queue; returns how many messages are ready in it."""
        flags = (1 if passive else 0) | (2 if durable else 0)
        flags_and_table = bytes([flags]) + table(arguments or {})
        self.send(method(1, 50, 10, b"\0\0" + short(name) + flags_and_table))
        answer = self.wait(50, 11)
        (ready,) = struct.unpack_from(">I", answer, 1 + answer[0])
        return int(ready)

    def delete_queue(self, name: str) -> None:
        """Deletes a queue with what is in it."""
        self.send(method(1, 50, 40, b"\0\0" + short(name) + b"\0"))
        self.wait(50, 41)

    def select_confirms(self) -> None:
        """Puts the channel into confirm mode."""
        self.send(method(1, 85, 10, b"\0"))
        self.wait(85, 11)

    def qos(self, prefetch: int) -> None:
        """basic.qos and its reply: what was sent before it on the channel has been processed."""
        self.send(method(1, 60, 10, struct.pack(">IHB", 0, prefetch, 0)))
        self.wait(60, 11)

    def consume(self, queue: str, tag: str, no_ack: bool = False) -> None:
        """Starts a consumer."""
        flags = b"\2" if no_ack else b"\0"
        self.send(method(1, 60, 20, b"\0\0" + short(queue) + short(tag) + flags + b"\0\0\0\0"))
        self.wait(60, 21)

    def acknowledge(self, delivery_tag: int, multiple: bool = False) -> None:
        """basic.ack; it has no reply, so follow it by `qos` to know that it was processed."""
        self.send(method(1, 60, 80, struct.pack(">QB", delivery_tag, multiple)))

    def reject(self, delivery_tag: int) -> None:
        """basic.nack of this delivery and all before it, back to their queues."""
        self.send(method(1, 60, 120, struct.pack(">QB", delivery_tag, 3)))

    def close(self) -> None:
        """connection.close, waits for its reply, closes the socket. Never raises."""
        try:
            self.send(method(0, 10, 50, struct.pack(">H", 200) + short("done") + b"\0\0\0\0"))
            self.wait(10, 51)
        except ConnectionLost:
            pass
        self.socket.close()

    def abort(self) -> None:
        """Closes the socket without a word."""
        self.socket.close()

"""A raw AMQP 0-9-1 client for tests: it sends any bytes, and says what came back.

Nothing is hidden: frames go out as built, several in one `send`, and each answer is read from the
socket when a test asks for it. Every read has a deadline (`timeout` seconds); no call sleeps.
"""

import re
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from tests.amqp.arguments import arguments, decode_arguments, decode_properties, properties
from tests.amqp.methods import BY_ID, METHODS

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_END = 0xCE
PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
CAPABILITIES = {
    "authentication_failure_close": True,
    "consumer_cancel_notify": True,
    "basic.nack": True,
    "publisher_confirms": True,
    "connection.blocked": True,
}


class ConnectionEndedError(AssertionError):
    """The broker closed the TCP connection where a frame was due."""


@dataclass(frozen=True)
class Frame:
    """One frame as it came: type octet, channel number, payload."""

    type: int
    channel: int
    payload: bytes


@dataclass(frozen=True)
class Method:
    """One method frame, taken apart: its AMQP name, its channel, its fields by name."""

    name: str
    channel: int
    fields: dict[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.fields[name]
        except KeyError:
            raise AttributeError(name) from None


@dataclass(frozen=True)
class Message:
    """A method with content (deliver, get-ok or return), its properties and its body."""

    method: Method
    properties: dict[str, Any]
    body: bytes

    @property
    def tag(self) -> int:
        """The delivery tag."""
        tag: int = self.method.fields["delivery_tag"]
        return tag

    @property
    def redelivered(self) -> bool:
        """The redelivered flag."""
        flag: bool = self.method.fields["redelivered"]
        return flag


def frame(type_: int, channel: int, payload: bytes, end: int = FRAME_END) -> bytes:
    """A frame: type, channel, length, payload, end octet."""
    return struct.pack(">BHI", type_, channel, len(payload)) + payload + bytes([end])


def method(channel: int, name: str, **fields: Any) -> bytes:
    """A method frame by name, its fields by name."""
    spec = METHODS[name]
    ids = struct.pack(">HH", spec.class_id, spec.method_id)
    return frame(METHOD, channel, ids + arguments(name, **fields))


def raw_method(channel: int, class_id: int, method_id: int, payload: bytes = b"") -> bytes:
    """A method frame of any numbers with any argument bytes."""
    return frame(METHOD, channel, struct.pack(">HH", class_id, method_id) + payload)


def header(
    channel: int, size: int, values: dict[str, Any] | None = None, class_id: int = 60
) -> bytes:
    """A content header frame."""
    payload = struct.pack(">HHQ", class_id, 0, size) + properties(values or {})
    return frame(HEADER, channel, payload)


def body(channel: int, data: bytes, frame_max: int = 131072) -> bytes:
    """The body frames of `data`, none if it is empty."""
    step = frame_max - 8
    return b"".join(frame(BODY, channel, data[at : at + step]) for at in range(0, len(data), step))


def content(
    channel: int, data: bytes, values: dict[str, Any] | None = None, frame_max: int = 131072
) -> bytes:
    """Content header and body frames."""
    return header(channel, len(data), values) + body(channel, data, frame_max)


def publish(
    channel: int,
    exchange: str,
    routing_key: str,
    data: bytes = b"",
    *,
    mandatory: bool = False,
    immediate: bool = False,
    frame_max: int = 131072,
    **values: Any,
) -> bytes:
    """basic.publish with its content; `values` are message properties."""
    return method(
        channel,
        "basic.publish",
        exchange=exchange,
        routing_key=routing_key,
        mandatory=mandatory,
        immediate=immediate,
    ) + content(channel, data, values, frame_max)


def decode_method(payload: bytes, channel: int) -> Method:
    """Takes a method frame's payload apart; `ValueError` for unknown ids or leftover bytes."""
    class_id, method_id = struct.unpack_from(">HH", payload)
    spec = BY_ID.get((class_id, method_id))
    if spec is None:
        raise ValueError(f"no method {class_id}.{method_id}")
    return Method(spec.name, channel, decode_arguments(spec, payload[4:]))


def plain_response(user: str, password: str) -> bytes:
    """The PLAIN mechanism's response."""
    return b"\x00" + user.encode() + b"\x00" + password.encode()


def start_ok(mechanism: str = "PLAIN", response: bytes | None = None, **fields: Any) -> bytes:
    """connection.start-ok, by default of guest; `fields` such as `client_properties`."""
    return method(
        0,
        "connection.start-ok",
        mechanism=mechanism,
        response=plain_response("guest", "guest") if response is None else response,
        locale="en_US",
        **fields,
    )


class Client:
    """One TCP connection. `Client(address)` only connects; `Client.open` does the handshake."""

    def __init__(self, address: tuple[str, int], timeout: float = 30.0) -> None:
        self.socket = socket.create_connection(address, timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.timeout = timeout
        self.buffer = b""
        self.frame_max = 131072
        self.tune: Method | None = None
        self.server_properties: dict[str, Any] = {}
        self.keep_heartbeats = False

    @classmethod
    def open(
        cls,
        address: tuple[str, int],
        *,
        channels: Iterable[int] = (1,),
        timeout: float = 30.0,
        virtual_host: str = "/",
        **handshake: Any,
    ) -> Self:
        """A connection that is open, with `channels` open too."""
        client = cls(address, timeout)
        client.start(**handshake)
        client.send_method(0, "connection.open", virtual_host=virtual_host)
        client.expect("connection.open-ok", 0)
        for channel in channels:
            client.call(channel, "channel.open")
        return client

    def start(
        self,
        *,
        user: str = "guest",
        password: str = "guest",
        mechanism: str = "PLAIN",
        response: bytes | None = None,
        client_properties: dict[str, Any] | None = None,
        channel_max: int | None = None,
        frame_max: int | None = None,
        heartbeat: int = 0,
    ) -> None:
        """Protocol header up to and including tune-ok."""
        self._sign_in(
            mechanism,
            plain_response(user, password) if response is None else response,
            {"product": "raw", "capabilities": CAPABILITIES}
            if client_properties is None
            else client_properties,
        )
        self.tune = self.expect("connection.tune", 0)
        self.frame_max = self.tune.frame_max if frame_max is None else frame_max
        self.send_method(
            0,
            "connection.tune-ok",
            channel_max=self.tune.channel_max if channel_max is None else channel_max,
            frame_max=self.frame_max,
            heartbeat=heartbeat,
        )

    def _sign_in(self, mechanism: str, response: bytes, properties: dict[str, Any]) -> None:
        """Protocol header up to start-ok."""
        self.send(PROTOCOL_HEADER)
        self.server_properties = self.expect("connection.start", 0).server_properties
        self.send_method(
            0,
            "connection.start-ok",
            client_properties=properties,
            mechanism=mechanism,
            response=response,
            locale="en_US",
        )

    def is_refused(self, user: str, password: str) -> None:
        """The broker does not let this user in with this password, and says so."""
        properties = {"capabilities": CAPABILITIES}
        self._sign_in("PLAIN", plain_response(user, password), properties)
        assert self.expect("connection.close", 0).reply_code == 403

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cut()

    # Sending

    def send(self, data: bytes) -> None:
        """Any bytes, in one write."""
        self.socket.sendall(data)

    def send_method(self, channel: int, name: str, **fields: Any) -> None:
        """One method frame."""
        self.send(method(channel, name, **fields))

    def publish(
        self, channel: int, exchange: str, routing_key: str, *args: Any, **more: Any
    ) -> None:
        """basic.publish with content, in one write."""
        more.setdefault("frame_max", self.frame_max or 131072)
        self.send(publish(channel, exchange, routing_key, *args, **more))

    def call(self, channel: int, name: str, **fields: Any) -> Method:
        """Sends a method and returns its -ok, which must be the next frame."""
        self.send_method(channel, name, **fields)
        return self.expect(f"{name}-ok", channel)

    # Receiving

    def read_exactly(self, count: int) -> bytes:
        """The next `count` octets; `ConnectionEndedError` at end of stream."""
        while len(self.buffer) < count:
            try:
                chunk = self.socket.recv(1 << 18)
            except ConnectionResetError:
                chunk = b""
            if not chunk:
                raise ConnectionEndedError(f"connection ended; unread octets: {self.buffer!r}")
            self.buffer += chunk
        data, self.buffer = self.buffer[:count], self.buffer[count:]
        return data

    def read_frame(self) -> Frame:
        """The next frame; heartbeats are passed over unless `keep_heartbeats` is set."""
        while True:
            type_, channel, size = struct.unpack(">BHI", self.read_exactly(7))
            if type_ == ord("A"):
                raise AssertionError("the broker answered with a protocol header")
            payload = self.read_exactly(size)
            end = self.read_exactly(1)[0]
            assert end == FRAME_END, f"frame ends with {end:#x}"
            if type_ != HEARTBEAT or self.keep_heartbeats:
                return Frame(type_, channel, payload)

    def read_method(self) -> Method:
        """The next frame, which must be a method."""
        got = self.read_frame()
        assert got.type == METHOD, f"a method was due, not {got}"
        return decode_method(got.payload, got.channel)

    def expect(self, name: str, channel: int | None = None, **fields: Any) -> Method:
        """The next frame must be this method, on this channel, with these field values."""
        got = self.read_method()
        assert got.name == name, f"{name} was due, not {got}"
        if channel is not None:
            assert got.channel == channel, f"{name} was due on channel {channel}, not {got}"
        for key, value in fields.items():
            assert got.fields[key] == value, f"{key}={value!r} was due in {got}"
        return got

    def read_content(self, start: Method) -> Message:
        """Header and body that follow `start`."""
        head = self.read_frame()
        assert (head.type, head.channel) == (HEADER, start.channel), f"a header was due, not {head}"
        class_id, weight, size = struct.unpack_from(">HHQ", head.payload)
        assert (class_id, weight) == (60, 0)
        parts, have = [], 0
        while have < size:
            part = self.read_frame()
            assert (part.type, part.channel) == (BODY, start.channel), f"a body was due, not {part}"
            assert not self.frame_max or len(part.payload) <= self.frame_max - 8
            parts.append(part.payload)
            have += len(part.payload)
        assert have == size, f"{have} octets of body, {size} announced"
        return Message(start, decode_properties(head.payload[12:]), b"".join(parts))

    def expect_message(self, name: str = "basic.deliver", channel: int | None = None) -> Message:
        """The next frames must be this method with content."""
        return self.read_content(self.expect(name, channel))

    def expect_messages(self, count: int, channel: int | None = None) -> list[Message]:
        """The next frames must be `count` deliveries."""
        return [self.expect_message(channel=channel) for _ in range(count)]

    def get(self, channel: int, queue: str, *, no_ack: bool = False) -> Message | None:
        """basic.get; None for get-empty."""
        self.send_method(channel, "basic.get", queue=queue, no_ack=no_ack)
        got = self.read_method()
        if got.name == "basic.get-empty":
            return None
        assert got.name == "basic.get-ok", f"get-ok or get-empty was due, not {got}"
        return self.read_content(got)

    def expect_confirms(self, channel: int, last: int, first: int = 1) -> dict[int, str]:
        """Reads basic.ack and basic.nack until tags `first` to `last` are told, each once."""
        told: dict[int, str] = {}
        while len(told) < last - first + 1:
            got = self.read_method()
            assert got.name in ("basic.ack", "basic.nack"), f"a confirm was due, not {got}"
            assert got.channel == channel, f"a confirm on channel {channel} was due, not {got}"
            low = first if got.multiple else got.delivery_tag
            tags = [tag for tag in range(low, got.delivery_tag + 1) if tag not in told]
            assert tags, f"{got} tells nothing new"
            assert got.delivery_tag <= last, f"{got} is for a message never sent"
            told |= dict.fromkeys(tags, got.name)
        return told

    def read_names(self, count: int) -> list[str]:
        """The names of the next `count` methods, contents passed over, in any order."""
        names = []
        for _ in range(count):
            got = self.read_method()
            names.append(got.name)
            if got.name in ("basic.deliver", "basic.get-ok", "basic.return"):
                self.read_content(got)
        return names

    def fence(self, channel: int) -> None:
        """Proves that nothing else was on its way: two round trips with nothing before them."""
        for _ in range(2):
            self.call(
                channel, "exchange.declare", exchange="amq.direct", type="direct", passive=True
            )

    def expect_channel_close(
        self, channel: int, code: int, class_id: int, method_id: int, text: str = ""
    ) -> Method:
        """The next frame must close the channel so; it is answered, so the number is free again."""
        got = self._expect_close("channel.close", channel, code, class_id, method_id, text)
        self.send_method(channel, "channel.close-ok")
        return got

    def expect_connection_close(
        self, code: int, class_id: int, method_id: int, text: str = ""
    ) -> Method:
        """The next frame must close the connection so; it is answered, and TCP must end."""
        got = self._expect_close("connection.close", 0, code, class_id, method_id, text)
        self.send_method(0, "connection.close-ok")
        self.expect_end()
        return got

    def _expect_close(
        self, name: str, channel: int, code: int, class_id: int, method_id: int, text: str
    ) -> Method:
        got = self.expect(name, channel)
        want = (code, class_id, method_id)
        have = (got.reply_code, got.class_id, got.method_id)
        assert have == want, f"{name} {want} was due, not {have}: {got.reply_text}"
        assert re.search(text, got.reply_text, re.DOTALL), f"{got.reply_text!r} lacks /{text}/"
        return got

    def expect_end(self) -> None:
        """The broker must close the TCP connection without another octet."""
        try:
            rest = self.buffer or self.socket.recv(4096)
        except ConnectionResetError:
            rest = b""
        assert not rest, f"end of stream was due, not {rest!r}"

    def read_to_end(self) -> bytes:
        """Every octet until the broker closes the TCP connection."""
        data, self.buffer = self.buffer, b""
        while True:
            try:
                chunk = self.socket.recv(1 << 18)
            except ConnectionResetError:
                return data
            if not chunk:
                return data
            data += chunk

    # Ending

    def close(self) -> None:
        """connection.close with its answer."""
        self.send_method(0, "connection.close", reply_code=200, reply_text="bye")
        self.expect("connection.close-ok", 0)
        self.cut()

    def end_sending(self) -> None:
        """Ends our half of the TCP connection."""
        self.socket.shutdown(socket.SHUT_WR)

    def cut(self) -> None:
        """Closes the TCP connection without a word."""
        self.socket.close()

    def reset(self) -> None:
        """Aborts the TCP connection (RST)."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

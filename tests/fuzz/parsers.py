"""Doors whose first room takes bytes and nothing else: they are called in this process.

Each takes a mutant and either returns or raises what it raises for bad input. Any other exception
is a finding, and so is a call of more than `TURN_MAX_S` of CPU time.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from broker.definitions.document import Fault, parse
from broker.fields import properties
from broker.fields.codec import Reader, encode_table
from broker.schema.control_schema import VERBS, Received, Request
from broker.schema.errors import AMQPError
from broker.server import proxy_protocol
from broker.server.websocket import WebSocketListener, WebSocketProtocol
from broker.settings.config import Config
from tests.amqp import raw
from tests.fuzz.doors import masked_frame
from tests.fuzz.found import TURN_MAX_S, Count, FoundError, chance_of, corpus, keep, minimise
from tests.fuzz.mutations import mutate
from tests.inner import check_table
from tests.websocket.standin import Admission, Sockets

ROOT = Path(__file__).resolve().parent.parent
TABLES = [
    {"x-max-length": 5, "x-overflow": "reject-publish", "x-single-active-consumer": True},
    {"a": {"b": {"c": [1, 2.5, "d", None, True, b"e" * 40, [[], [1]]]}}, "t": 2**62, "n": -1},
    {f"key-{number}": "value" * number for number in range(40)},
]
LISTED = [
    {"headers": TABLES[1], "delivery_mode": 2, "expiration": "500", "priority": 3},
    {"content_type": "a/b", "correlation_id": "c", "reply_to": "r", "user_id": "guest", "type": ""},
]


@dataclass(frozen=True)
class Parser:
    """A name, valid inputs, what takes them, and the exceptions that say an input is bad."""

    name: str
    seeds: Callable[[], list[bytes]]
    take: Callable[[bytes], object]
    refusals: tuple[type[BaseException], ...] = ()


def _tables() -> list[bytes]:
    return [encode_table(table)[4:] for table in TABLES]


def _check_table(data: bytes) -> None:
    check_table(data)
    Reader(len(data).to_bytes(4, "big") + data).table()


def _headers() -> list[bytes]:
    return [properties.encode(listed) for listed in LISTED]


def _proxy_headers() -> list[bytes]:
    signature = proxy_protocol.SIGNATURE
    return [
        b"PROXY TCP4 10.0.0.1 10.0.0.2 1000 5672\r\nAMQP\x00\x00\x09\x01",
        b"PROXY TCP6 ::1 2001:db8::2 65535 1\r\n",
        b"PROXY UNKNOWN\r\n",
        signature + b"\x21\x11\x00\x0c\x0a\0\0\x01\x0a\0\0\x02\x03\xe8\x16\x28",
        signature + b"\x21\x21\x00\x2b" + bytes(36) + b"\x04\x00\x04abcd",
        signature + b"\x20\x00\x00\x00",
    ]


def _documents() -> list[bytes]:
    fixtures = ROOT / "definitions" / "fixtures"
    small = {
        "vhosts": [{"name": "v"}],
        "queues": [{"name": "q", "vhost": "/", "durable": True, "arguments": {"x-max-length": 5}}],
        "policies": [{"name": "p", "vhost": "/", "pattern": "^a", "definition": {"max-length": 1}}],
        "numbers": [1, -2.5e10, 10**30, {"deep": [[[[[[]]]]]]}],
    }
    kept = [path.read_bytes() for path in sorted(fixtures.glob("*.json"))]
    return [json.dumps(small).encode(), *(each for each in kept if len(each) < 30_000)]


def _parse_document(data: bytes) -> None:
    longest, begun = 0.0, time.thread_time()
    for _ in parse(data):
        now = time.thread_time()
        longest, begun = max(longest, now - begun), now
    assert longest < TURN_MAX_S, "a step of a document took too long"


def _frames() -> list[bytes]:
    encoder = msgspec.msgpack.Encoder()
    rows = [
        Request(id=1, verb="list", as_user="guest", args={"noun": "queues", "page": 1}),
        Request(id=2, verb="queue.declare", args={"vhost": "/", "name": "q", "arguments": {}}),
        Request(id=3, verb="overview", args={"ages": {"msg_rates": [60, 5]}}),
        Request(
            id=4,
            verb="policy.put",
            args={"vhost": "/", "name": "p", "pattern": "^a", "definition": {}},
        ),
    ]
    return [encoder.encode(row) for row in rows]


_decoder = msgspec.msgpack.Decoder(Received)


def _control_frame(data: bytes) -> None:
    frame = _decoder.decode(data)
    verb = VERBS.get(frame.verb)
    if verb is not None:
        msgspec.msgpack.decode(frame.args, type=verb.arguments)


HANDSHAKE = (
    b"GET /fuzz HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: amqp\r\n\r\n"
)


def _messages() -> list[bytes]:
    chance = random.Random(1)
    start = masked_frame(chance, raw.PROTOCOL_HEADER)
    long = masked_frame(chance, bytes(200)) + masked_frame(chance, bytes(70_000))
    parts = masked_frame(chance, b"ab", 0x02) + masked_frame(chance, b"cd", 0x80)
    calls = masked_frame(chance, b"ping", 0x89) + masked_frame(chance, b"\x03\xe8bye", 0x88)
    return [HANDSHAKE, HANDSHAKE + start + long, HANDSHAKE + start + parts + calls]


class _Nowhere(asyncio.Transport):
    """A socket's transport whose other side takes everything."""

    def __init__(self) -> None:
        super().__init__()
        self.closing = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "socket":
            return SimpleNamespace(fileno=lambda: -1)
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else None

    def write(self, data: bytes) -> None:
        assert len(data) < 1 << 20

    def close(self) -> None:
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.closing = True

    write_eof = abort

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class _Sink:
    """The broker's side of a connection: it takes everything."""

    user = ""
    fd = -1

    def write_messages(self) -> None: ...
    def receive_buffer(self, data: memoryview, size: int) -> None: ...
    def discard(self, size: int) -> None: ...
    def lost(self, reason: str) -> None: ...
    def pause_writing(self) -> None: ...
    def writable(self) -> None: ...


_listener = WebSocketListener(
    SimpleNamespace(
        config=Config(),
        admission=Admission(),
        sockets=Sockets(),
        turn=SimpleNamespace(offered=1 << 18),
        receive_buffer=memoryview(bytearray(1 << 18)),
        persister=SimpleNamespace(tail_bytes=0),
        pressure=SimpleNamespace(limit=lambda *_: None),
        accept=lambda *_, **__: _Sink(),
    )
)


def _websocket(data: bytes) -> None:
    async def go() -> None:
        door = WebSocketProtocol(_listener)
        door.connection_made(_Nowhere())
        cut = len(data) // 2
        for part in (data[:cut], data[cut:]):
            if part and not door._transport.is_closing():
                door.get_buffer(len(part))[: len(part)] = part
                door.buffer_updated(len(part))
        door.eof_received()
        door.connection_lost(None)

    _loop.run_until_complete(go())


_loop = asyncio.new_event_loop()

PARSERS = {
    parser.name: parser
    for parser in (
        Parser("fields", _tables, _check_table, (AMQPError, ValueError)),
        Parser("properties", _headers, properties.decode, (AMQPError, ValueError)),
        Parser("proxy-header", _proxy_headers, proxy_protocol.parse_any,
               (proxy_protocol.ProxyError,)),
        Parser("definitions-text", _documents, _parse_document, (Fault,)),
        Parser("control-frame", _frames, _control_frame,
               (msgspec.MsgspecError, UnicodeDecodeError)),
        Parser("websocket-frames", _messages, _websocket),
    )
}  # fmt: skip


def _verdict(parser: Parser, data: bytes) -> tuple[float, str]:
    """CPU seconds of one call, and what was wrong with it."""
    begun = time.thread_time()
    try:
        parser.take(data)
    except parser.refusals:
        pass
    except Exception as error:
        return 0.0, f"{type(error).__name__}: {error}"[:300]
    return time.thread_time() - begun, ""


def _judge(parser: Parser, data: bytes, count: Count) -> None:
    took, wrong = _verdict(parser, data)
    if not wrong and took > TURN_MAX_S:
        # Another process may have had the caches: only what is always slow is a finding.
        took = min(_verdict(parser, data)[0] for _ in range(5))
        wrong = f"takes {took * 1000:.1f} ms" if took > TURN_MAX_S else ""
    count.longest = max(count.longest, took)
    if wrong and len(count.findings) < 20:

        def fails(tried: bytes) -> bool:
            again, text = _verdict(parser, tried)
            return bool(text) or again > TURN_MAX_S

        path = keep(parser.name, minimise(data, fails))
        count.findings.append(f"{parser.name}: {wrong}; corpus {path.name}")


def fuzz(name: str, seed: int, first: int, number_of: int) -> Count:
    """The mutants `first` to `first + number_of` of a parser, after its corpus. Raises FoundError
    if a valid input is refused."""
    parser = PARSERS[name]
    count = Count()
    seeds = parser.seeds()
    for data in seeds:
        wrong = ""
        try:
            parser.take(data)
        except Exception as error:
            wrong = repr(error)
        if wrong:
            raise FoundError(f"{name}: a valid input is refused: {wrong}")
    kept = corpus(name)
    for data in kept:
        _judge(parser, data, count)
    begun = time.monotonic()
    for number in range(first, first + number_of):
        chance = chance_of(seed, name, number)
        data = mutate(chance, chance.choice([*seeds, *kept]))
        count.mutants += 1
        count.octets += len(data)
        _judge(parser, data, count)
    count.seconds = time.monotonic() - begun
    return count

"""Doors that are asked and answer: the control socket, definitions through it, the web port's pages
and API, the metrics port.

A mutant is a request. Most stay well-formed outside, so that they come as far as the verbs and
views; the others are broken as bytes, which ends their connection.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import socket
import struct
import time
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, Literal
from urllib.parse import quote

import httpx
import msgspec

from broker.schema.control_schema import VERBS, Request
from tests.appliance import Appliance
from tests.fuzz.found import Count, FoundError, batches, chance_of, corpus
from tests.fuzz.mutations import mutate
from tests.fuzz.parsers import TABLES

PATIENCE_S = 60.0
AT_ONCE = 32
NAMES = ["fuzz-a", "fuzz-b", "fuzz-v", "", "amq.direct", "ü\u202e", "../..", "x" * 255, "y" * 300]
NAMES += ["a\x00b", "<b>", "%2F", "a,b", "{{7*7}}", "\ud7ff", "-1", "fuzz.*.#"]
NUMBERS = [0, 1, 2, -1, 100, 500, 65_536, 2**31, 2**53, 2**63 - 1, -(2**63)]
LEFT_OUT = {
    "backup.begin": "holds the store until its connection ends",
    "password.hash": "takes 40 ms of a thread each",
    "authenticate": "the same",
    "log": "waits for lines to come",
    "definitions.import": "is a door of its own",
}


def anything(chance: random.Random, depth: int = 0) -> Any:
    """A value of any kind."""
    kind = chance.randrange(9 if depth < 3 else 6)
    if kind == 0:
        return None
    if kind == 1:
        return chance.choice(NUMBERS)
    if kind == 2:
        return chance.random() * 10 ** chance.randrange(-300, 300)
    if kind == 3:
        return chance.random() < 0.5
    if kind in (4, 5):
        return chance.choice(NAMES)
    if kind == 6:
        return [anything(chance, depth + 1) for _ in range(chance.randrange(4))]
    if kind == 7:
        return dict(chance.choice(TABLES)) if depth == 0 else {}
    return {chance.choice(NAMES): anything(chance, depth + 1) for _ in range(chance.randrange(4))}


def value_of(chance: random.Random, kind: Any) -> Any:
    """A value of a field's type, now and then of any other."""
    if chance.random() < 0.04:
        return anything(chance)
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return value_of(chance, chance.choice(parts))
    if origin is Literal:
        return chance.choice(parts)
    if origin is list:
        return [value_of(chance, parts[0]) for _ in range(chance.choice((0, 1, 2, 50)))]
    if origin is dict:
        return {
            chance.choice(NAMES): value_of(chance, parts[1]) for _ in range(chance.randrange(4))
        }
    if origin is tuple:
        return [value_of(chance, part) for part in parts]
    made = {
        str: lambda: chance.choice(NAMES),
        int: lambda: chance.choice(NUMBERS),
        float: lambda: chance.random(),
        bool: lambda: chance.random() < 0.5,
        bytes: lambda: chance.randbytes(chance.choice((0, 10, 5000))),
        type(None): lambda: None,
    }
    return made.get(kind, lambda: anything(chance))()


def _control_request(chance: random.Random, number: int) -> bytes:
    verb = chance.choice([each for name, each in VERBS.items() if name not in LEFT_OUT])
    args: dict[str, Any] = {}
    for field in msgspec.structs.fields(verb.arguments):
        if chance.random() < 0.8:
            args[field.name] = value_of(chance, field.type)
    if isinstance(args.get("vhost"), str) and chance.random() < 0.7:
        # The vhost of the probe keeps its limits.
        args["vhost"] = "fuzz-v" if "limit" in verb.name else "/"
    if verb.name == "list" or verb.name == "item":
        nouns = ("queues", "exchanges", "bindings", "connections", "users", "policies", "problems")
        args["noun"] = chance.choice(nouns)
    if verb.name in ("user.put", "vhost.put"):
        args["name"] = chance.choice(("fuzz-v", "fuzz-a"))
        args.pop("password", None)
    as_user = chance.choice((None, "guest", "guest", "nobody"))
    frame = Request(id=number, verb=verb.name, as_user=as_user, args=args)
    return msgspec.msgpack.encode(frame)


DOCUMENT = {
    "vhosts": [{"name": "fuzz-v", "metadata": {"tags": ["a"], "description": "d"}}],
    "users": [{"name": "fuzz-a", "password_hash": "a" * 48, "tags": "monitoring"}],
    "permissions": [
        {"user": "fuzz-a", "vhost": "fuzz-v", "configure": ".*", "write": "", "read": "^a"}
    ],
    "parameters": [{"vhost": "fuzz-v", "component": "shovel", "name": "s", "value": {"a": 1}}],
    "policies": [
        {
            "vhost": "fuzz-v",
            "name": "p",
            "pattern": "^q",
            "apply-to": "queues",
            "definition": {"max-length": 5, "dead-letter-exchange": "x"},
            "priority": 1,
        }
    ],
    "exchanges": [
        {
            "vhost": "fuzz-v",
            "name": "fuzz-x",
            "type": "topic",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {"alternate-exchange": "y"},
        }
    ],
    "queues": [
        {
            "vhost": "fuzz-v",
            "name": "fuzz-q",
            "durable": True,
            "auto_delete": False,
            "arguments": {"x-max-priority": 5, "x-message-ttl": 1000},
        }
    ],
    "bindings": [
        {
            "source": "fuzz-x",
            "vhost": "fuzz-v",
            "destination": "fuzz-q",
            "destination_type": "queue",
            "routing_key": "a.#",
            "arguments": {},
        }
    ],
}


def _document(chance: random.Random, number: int) -> bytes:
    """A document with values of any kind at some places, or with broken bytes."""
    text = json.dumps(DOCUMENT)
    if chance.random() < 0.5:
        document = json.loads(text)
        for _ in range(chance.choice((1, 1, 2, 5))):
            section = chance.choice(list(document))
            if chance.random() < 0.1:
                document[section] = anything(chance)
            elif isinstance(document[section], list) and isinstance(document[section][:1], list):
                rows = [row for row in document[section] if isinstance(row, dict)]
                if rows:
                    row = chance.choice(rows)
                    row[chance.choice([*row, "x"])] = anything(chance)
        definitions = json.dumps(document, default=repr).encode()
    else:
        definitions = mutate(chance, text.encode())
    args = {"definitions": definitions, "dry_run": chance.random() < 0.3}
    return msgspec.msgpack.encode(Request(id=number, verb="definitions.import", args=args))


class Control:
    """The control socket: batches of frames side by side, each of them answered."""

    def __init__(self, appliance: Appliance, name: str = "control") -> None:
        self.name = name
        self.appliance = appliance
        self.make = _control_request if name == "control" else _document
        self.socket: socket.socket | None = None
        self.decoder = msgspec.msgpack.Decoder()

    def send(self, seed: int, numbers: range, count: Count) -> None:
        """Raises FoundError for no answer in time and for internal errors."""
        frames: dict[int, bytes] = {}
        broken = b""
        for number in numbers:
            chance = chance_of(seed, self.name, number)
            data = self.make(chance, number)
            if chance.random() < 0.02:
                # Its connection ends: it comes last.
                broken += len(data).to_bytes(4, "big") + mutate(chance, data)
            else:
                frames[number] = data
            count.octets += len(data)
        where = f"{self.name}, seed {seed}, mutants {numbers.start} to {numbers.stop}"
        try:
            self._exchange(frames, broken)
        except TimeoutError:
            raise FoundError(f"{where}: no answer in time") from None
        except (OSError, EOFError) as error:
            raise FoundError(f"{where}: {error!r}") from error
        count.mutants += len(numbers)

    def _exchange(self, frames: dict[int, bytes], broken: bytes) -> None:
        if self.socket is None:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(PATIENCE_S)
            self.socket.connect(str(self.appliance.control_socket))
            self.reader = self.socket.makefile("rb")
        for data in frames.values():
            self.socket.sendall(struct.pack(">I", len(data)) + data)
        self._answers(frames)
        if broken:
            self.socket.sendall(broken)
            self.socket.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionError):
                while self.socket.recv(1 << 16):
                    pass
            self.reader.close()
            self.socket.close()
            self.socket = None

    def serve_again(self) -> None:
        """Ends what mutants of `app.stop`, `node.drain` and `listeners.suspend` did, before a good
        client looks. Raises FoundError."""
        request = Request(id=-1, verb="app.start", args={})
        try:
            self._exchange({-1: msgspec.msgpack.encode(request)}, b"")
        except (OSError, EOFError) as error:
            raise FoundError(f"{self.name}: app.start is not answered: {error!r}") from error

    def _answers(self, frames: dict[int, bytes]) -> None:
        waiting = set(frames)
        while waiting:
            (size,) = struct.unpack(">I", self._read(4))
            answer = self.decoder.decode(self._read(size))
            if answer.get("error", {}).get("error") == "internal_error":
                verb = msgspec.msgpack.decode(frames[answer["id"]])
                raise EOFError(f"{answer['error']} to {str(verb)[:1000]}")
            waiting.discard(answer.get("id"))

    def _read(self, size: int) -> bytes:
        data: bytes = self.reader.read(size)
        if len(data) < size:
            raise EOFError("the connection ended")
        return data


PAGES = [
    "/",
    "/queues",
    "/exchanges",
    "/connections",
    "/policies",
    "/problems",
    "/vhosts",
    "/users",
]
PAGES += ["/queues/%2F/fuzz-a", "/exchanges/%2F/amq.topic", "/users/guest", "/node", "/log"]
PAGES += ["/definitions", "/reports", "/palette?q=a", "/console", "/login", "/health", "/static/x"]
QUERIES = ["page", "page_size", "name", "use_regex", "sort", "sort_reverse", "columns", "vhost"]
QUERIES += ["lengths_age", "lengths_incr", "disable_stats", "q", "next", "count", "q[]"]
# Routes that start Spark, wait for something to happen, or take the probe's rights away.
NOT_ASKED = re.compile(r"reports|/auth/hash|/log|/users|/permissions|vhost-limits|vhosts/\{")
HEADERS = [b"Cookie", b"Origin", b"Host", b"X-Forwarded-For", b"Content-Type", b"Accept-Encoding"]
HEADERS += [
    b"Content-Length",
    b"Transfer-Encoding",
    b"Connection",
    b"Expect",
    b"Range",
    b"X-Reason",
]


class Pages:
    """The web port or the metrics port; requests of one keep-alive connection after the other."""

    def __init__(self, appliance: Appliance, name: str) -> None:
        self.name = name
        metrics = name == "metrics"
        self.address = (
            appliance.host,
            appliance.metrics_port if metrics else appliance.http_port,
        )
        self.routes = self._metrics_routes() if metrics else self._routes(appliance)
        self.socket: socket.socket | None = None

    @staticmethod
    def _metrics_routes() -> list[tuple[str, str]]:
        names = ("", "/per-object", "/detailed", "/memory-breakdown")
        return [("GET", f"/metrics{name}") for name in names]

    @staticmethod
    def _routes(appliance: Appliance) -> list[tuple[str, str]]:
        answer = httpx.get(
            f"{appliance.http_url}/api/openapi.json", auth=("guest", "guest"), timeout=PATIENCE_S
        )
        routes = [
            (method.upper(), path)
            for path, methods in answer.json()["paths"].items()
            for method in methods
            if method == "get" or not NOT_ASKED.search(path)
        ]
        asked = [route for route in routes if "/log" not in route[1]]
        return asked + [("GET", page) for page in PAGES] * 4

    def request(self, chance: random.Random) -> tuple[bytes, bool]:
        """A request, and whether its head is as HTTP wants it."""
        method, path = chance.choice(self.routes)

        def segment(_: re.Match[str]) -> str:
            name = chance.choice(["%2F", "fuzz-a", *NAMES])
            return name if name == "%2F" else quote(name, safe="")

        path = re.sub(r"\{[^}]*\}", segment, path)
        if chance.random() < 0.5:
            pairs = (
                (chance.choice([*QUERIES, "family", "queue", "x" * 50]), str(anything(chance)))
                for _ in range(chance.choice((1, 2, 3, 200)))
            )
            path += "?" + "&".join(f"{name}={quote(text)}" for name, text in pairs)
        body = b""
        if method in ("PUT", "POST", "DELETE"):
            body = json.dumps(anything(chance), default=repr).encode()
            if chance.random() < 0.4:
                body = mutate(chance, body)
        head = f"{method} {path[:8000]} HTTP/1.1\r\nHost: localhost\r\n".encode()
        head += b"Authorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\nContent-Type: application/json\r\n"
        if body or method in ("PUT", "POST"):
            head += b"Content-Length: %d\r\n" % len(body)
        if chance.random() < 0.08:
            name = chance.choice(HEADERS)
            head += name + b": " + mutate(chance, b"a=b; c=\\1, gzip;q=1") + b"\r\n"
            return head + b"\r\n" + body, False
        if chance.random() < 0.08:
            return mutate(chance, head + b"\r\n" + body), False
        return head + b"\r\n" + body, True

    def send(self, seed: int, numbers: range, count: Count) -> None:
        """Raises FoundError for no answer in time and for one that tells of an internal error."""
        for number in numbers:
            chance = chance_of(seed, self.name, number)
            data, whole = self.request(chance)
            where = f"{self.name}, seed {seed}, mutant {number}: {data[:300]!r}"
            try:
                status = self._ask(data, whole)
            except TimeoutError:
                raise FoundError(f"{where}: no answer in time") from None
            except OSError:
                self._end()  # it was cut off, which is an answer
                status = b""
            if status.startswith(b"500"):
                raise FoundError(f"{where}: {status!r}")
            count.mutants += 1
            count.octets += len(data)

    def serve_again(self) -> None:
        """No request of these doors ends the service."""

    def _end(self) -> None:
        if self.socket is not None:
            self.socket.close()
            self.socket = None

    def _ask(self, data: bytes, whole: bool) -> bytes:
        if self.socket is None:
            self.socket = socket.create_connection(self.address, PATIENCE_S)
        self.socket.sendall(data)
        if not whole:
            self.socket.shutdown(socket.SHUT_WR)
        head = b""
        while b"\r\n\r\n" not in head:
            part = self.socket.recv(1 << 16)
            if not part:
                self._end()
                return head[9:40]
            head += part
        head, _, rest = head.partition(b"\r\n\r\n")
        low = head.lower()
        length = re.search(rb"\r\ncontent-length: *(\d+)", low)
        self._take_body(data, low, int(length[1]) if length else None, rest)
        if not whole or b"\r\nconnection: close" in low:
            self._end()
        return head[9:40]

    def _take_body(self, asked: bytes, head: bytes, length: int | None, rest: bytes) -> None:
        assert self.socket is not None
        if head[9:12] in (b"304", b"204") or asked.startswith(b"HEAD"):
            return
        if length is not None:
            while len(rest) < length and (part := self.socket.recv(1 << 16)):
                rest += part
        elif b"chunked" in head:
            while not rest.endswith(b"0\r\n\r\n") and (part := self.socket.recv(1 << 16)):
                rest = rest[-16:] + part
        else:
            while self.socket.recv(1 << 16):
                pass
            self._end()


def kept(door: str) -> Iterator[bytes]:
    """The corpus of a door; it is sent as it is."""
    yield from corpus(door)


def fuzz(
    door: Control | Pages,
    seed: int,
    first: int,
    number_of: int,
    look: Callable[[str], None],
    seconds: float | None = None,
) -> Count:
    """Sends mutants; `look` is called now and then and raises FoundError if something is wrong."""
    count = Count()
    begun = looked = time.monotonic()
    try:
        for numbers in batches(first, number_of, AT_ONCE):
            door.send(seed, numbers, count)
            now = time.monotonic()
            if now - looked > 2:
                looked = now
                door.serve_again()
                look(f"{door.name}, seed {seed}, mutants up to {numbers.stop}")
            if seconds is not None and now - begun > seconds:
                break
        door.serve_again()
        look(f"{door.name}, seed {seed}, at the end")
    except FoundError as error:
        count.findings.append(str(error))
    count.seconds = time.monotonic() - begun
    return count

"""The twelve findings, each as it was made."""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter

import httpx

from tests.amqp import raw
from tests.api.test_sessions import sign_in
from tests.hostile.attacks.attacker import (
    MALLORY,
    PROXY,
    Attacker,
    basic,
    drain,
    request,
    status,
    told,
)
from tests.hostile.measuring import CountingSocket
from tests.hostile.sockets import BINARY, CONTINUED, PING, TEXT, Flood, frame, opened

SLOW = "((?:a|b|ab|ba)?){1000}$"
LARGEST = "(?:(?:a?b?a?b?){16}){9}$"
"""Just below the instructions that a compiled pattern may have."""
MIB = 1 << 20


def unread_returns(attacker: Attacker) -> str:
    """Returns of 100 kB on 20 connections that read nothing."""
    clients = [attacker.amqp() for _ in range(20)]
    data = raw.publish(1, "", "nowhere", bytes(100_000), mandatory=True)
    flood = Flood([client.socket for client in clients], data * 10, endless=True)
    time.sleep(attacker.seconds)
    flood.stop()
    return "reading stops"


def slow_patterns(attacker: Attacker) -> str:
    """Lists of 500 queues filtered by patterns, in eight connections, and as policies."""
    rows = [
        {"vhost": MALLORY, "name": f"{'ab' * 100}{n}", "durable": True}
        for n in range(attacker.count(500))
    ]
    with attacker.api("guest") as guest:
        guest.post("/api/definitions", content=json.dumps({"queues": rows})).raise_for_status()
        answers: Counter[int] = Counter()
        socks = [attacker.connect("http") for _ in range(8)]
        for number in attacker.rounds():
            for pattern in (SLOW, LARGEST):
                url = httpx.URL(
                    f"/api/queues/{MALLORY}",
                    params={"page": 1, "use_regex": "true", "name": f"{pattern}{number}?"},
                )
                for sock in socks:
                    sock.sendall(request(f"GET {url}", who=basic(MALLORY, MALLORY)))
                answers.update(status(sock) for sock in socks)
            body = {"pattern": LARGEST, "definition": {"max-length": 1}, "apply-to": "queues"}
            put = guest.put(f"/api/policies/{MALLORY}/slow", json=body)
            assert put.status_code in (201, 204), put.text
            body["pattern"] = SLOW
            assert guest.put(f"/api/policies/{MALLORY}/slow", json=body).status_code == 400
        guest.delete(f"/api/policies/{MALLORY}/slow").raise_for_status()
        empty(guest)
    assert answers[400], "the slow pattern was taken"
    return told(answers)


def empty(guest: httpx.Client) -> None:
    """Deletes mallory's virtual host and makes it again."""
    guest.delete(f"/api/vhosts/{MALLORY}").raise_for_status()
    prepare(guest)


def prepare(guest: httpx.Client) -> None:
    """Mallory's virtual host and rights."""
    guest.put(f"/api/vhosts/{MALLORY}").raise_for_status()
    rights = dict.fromkeys(("configure", "write", "read"), ".*")
    for user in (MALLORY, "guest"):
        guest.put(f"/api/permissions/{MALLORY}/{user}", json=rights).raise_for_status()


def wrong_passwords(attacker: Attacker) -> str:
    """On 200 connections over HTTP and 400 over AMQP."""
    answers: Counter[int] = Counter()
    web = [attacker.connect("http") for _ in range(200)]
    for number in attacker.rounds():
        closing = []
        for each in range(400):
            with contextlib.suppress(OSError):
                sock = attacker.connect("amqp")
                response = raw.plain_response(f"nobody-{number}-{each}", "guess")
                sock.sendall(raw.PROTOCOL_HEADER + raw.start_ok(response=response))
                closing.append(sock)
        for each, sock in enumerate(web):
            who = basic(f"nobody-{number}-{each}", "guess")
            with contextlib.suppress(OSError):
                sock.sendall(request("GET /api/whoami", who=who))
        found = [status(sock) for sock in web]
        answers.update(found)
        web = [
            sock if answer else attacker.connect("http")
            for sock, answer in zip(web, found, strict=True)
        ]
        for sock in closing:
            sock.close()
    assert not answers[200]
    return told(answers)


def pipelining(attacker: Attacker) -> str:
    """6 MB of requests on 20 connections that read nothing, again and again."""
    data = b"GET / HTTP/1.1\r\n\r\n" * (300_000 // 18)
    for _ in attacker.rounds():
        socks = [attacker.connect("http") for _ in range(20)]
        Flood(socks, data).wait()
        for sock in socks:
            sock.close()
    return "the rest stays in the socket"


def cookies(attacker: Attacker) -> str:
    """60,000 backslashes, on a page and both WebSockets."""
    cookie = b'Cookie: leveret_session="' + b"\\" * 60_000 + b'"'
    answers: Counter[int] = Counter()
    upgrade = (b"Upgrade: websocket", b"Connection: Upgrade", b"Sec-WebSocket-Version: 13")
    key = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    for _ in attacker.rounds():
        for path, headers in (("/login", ()), ("/live/", (*upgrade, key)), ("/amqp", upgrade)):
            with attacker.connect("http") as sock:
                sock.sendall(request(f"GET {path}", cookie, *headers))
                answers[status(sock)] += 1
    return told(answers)


def topic_patterns(attacker: Attacker) -> str:
    """As many patterns of `#` and `*` as are taken, and keys of 121 words."""
    client = attacker.amqp()
    client.call(1, "queue.declare", queue="t", exclusive=True)
    taken, text = 0, ""
    for number in range(3000):
        words = ["#" if number >> bit & 1 else "*" for bit in range(12)] * 5
        key = ".".join(words[: 20 + number % 40])
        client.send(raw.method(1, "queue.bind", queue="t", exchange="amq.topic", routing_key=key))
        method = client.read_method()
        if method.name == "queue.bind-ok":
            taken += 1
            continue
        text = f", then {method.reply_code} {method.reply_text}"
        client.send(raw.method(1, "channel.close-ok"))
        client.call(1, "channel.open")
        if number > taken + 20:
            break
    publish = raw.publish(1, "amq.topic", ".".join(["a"] * 121), b"")
    published = 0
    for _ in attacker.rounds():
        client.send(publish * 100)
        client.fence(1)
        client.call(1, "queue.purge", queue="t")
        published += 100
    return f"{taken:,} bindings{text}; {published:,} published"


def slow_bodies(attacker: Attacker) -> str:
    """200 connections that withhold the last byte of 3 MB, with a password and without."""
    answers: Counter[int] = Counter()
    body = bytes(3_000_000 - 1)
    socks = []
    for number in range(attacker.count(200)):
        who = basic(MALLORY, MALLORY) if number % 2 else b""
        sock = attacker.connect("http")
        sock.settimeout(1)
        socks.append(sock)
        head = request("PUT /api/queues/mallory/slow", b"Content-Length: 3000000", who=who)
        with contextlib.suppress(OSError):
            sock.sendall(head + body)
    time.sleep(attacker.seconds)
    for sock in socks:
        sock.settimeout(0.05)
        answers[status(sock)] += 1
        sock.close()
    return told(answers).replace("cut off", "held or cut off")


def bodies_without_credentials(attacker: Attacker) -> str:
    """128 KB of a body on each of 1,000 connections, without a password."""
    socks = []
    head = request("POST /api/definitions", b"Content-Length: 131072")
    for _ in range(attacker.count(1000)):
        with contextlib.suppress(OSError):
            sock = attacker.connect("http")
            socks.append(sock)
            sock.settimeout(1)
            sock.sendall(head + bytes(131_071))
    time.sleep(attacker.seconds)
    answers: Counter[int] = Counter()
    for sock in socks:
        sock.settimeout(0.05)
        answers[status(sock)] += 1
        sock.close()
    return told(answers)


def heads_without_end(attacker: Attacker) -> str:
    """60 kB of a request's head on each of 1,000 connections."""
    socks = []
    for _ in range(attacker.count(1000)):
        with contextlib.suppress(OSError):
            sock = attacker.connect("http")
            socks.append(sock)
            sock.settimeout(1)
            sock.sendall(request("GET /")[:-2] + b"X-Long: " + b"x" * 60_000)
    time.sleep(attacker.seconds)
    answers: Counter[int] = Counter()
    for sock in socks:
        sock.settimeout(0.05)
        answers[status(sock)] += 1
        sock.close()
    return told(answers).replace("cut off", "held or cut off")


def session(attacker: Attacker) -> str:
    """A Cookie header of mallory's, signed in."""
    with httpx.Client(base_url=attacker.appliance.http_url, timeout=60) as client:
        assert sign_in(client, MALLORY, MALLORY).status_code == 302
        return "; ".join(f"{name}={value}" for name, value in client.cookies.items())


def live_subscriptions(attacker: Attacker) -> str:
    """A user's pages up to the limit and more, each following and leaving without a pause."""
    cookie = session(attacker)
    most = attacker.limit("live_user_sockets_max")
    socks = [opened(attacker.appliance, "http", "/live/", Cookie=cookie)[0] for _ in range(most)]
    more = opened(attacker.appliance, "http", "/live/", Cookie=cookie)[0]
    refusal = drain(more, 5)
    assert b"live_user_sockets_max" in refusal, refusal
    for page, sock in enumerate(socks):
        texts = (
            {
                "type": "subscribe",
                "id": number % 32,
                "topic": "rows",
                "noun": "queues",
                "keys": [[MALLORY, f"q{page}-{number}-{key}"] for key in range(20)],
            }
            for number in range(200)
        )
        Flood([sock], b"".join(frame(TEXT, json.dumps(t).encode()) for t in texts), endless=True)
    time.sleep(attacker.seconds)
    return f"{most} pages followed and left; one more: live_user_sockets_max"


def _relay(attacker: Attacker, data: bytes, *, count: int = 8, first: bytes = b"") -> str:
    """The same bytes before login on the relay of the web port, without a pause."""
    sent = 0
    for _ in attacker.rounds():
        socks = []
        for _ in range(count):
            sock, _answer = opened(attacker.appliance, "http")
            sock.sendall(first)
            socks.append(sock)
        Flood(socks, data).wait()
        sent += count
        for sock in socks:
            sock.close()
    return f"{sent:,} connections were cut off"


def relay_long_message(attacker: Attacker) -> str:
    """Messages of 4 MB before login on the web port's relay."""
    return _relay(attacker, frame(BINARY, b"AMQP" + bytes(4 * MIB - 100)))


def relay_unfinished(attacker: Attacker) -> str:
    """One unfinished frame before login on the web port's relay."""
    return _relay(attacker, frame(BINARY, bytes(4 * MIB - 200), length=4 * MIB - 100))


def relay_single_bytes(attacker: Attacker) -> str:
    """Frames and fragments of one byte before login on the web port's relay."""
    return _relay(
        attacker,
        frame(CONTINUED, b"x", fin=False) * 600_000,
        first=frame(BINARY, b"x") * 1000 + frame(BINARY, b"x", fin=False),
    )


def relay_pings(attacker: Attacker) -> str:
    """Pings before login on the web port's relay."""
    return _relay(attacker, frame(PING, bytes(125)) * 30_000)


def foreign_names(attacker: Attacker) -> str:
    """Everything of a virtual host in which the user has no rights."""
    nouns = ("queues", "exchanges", "bindings", "consumers", "policies", "vhost-limits")
    paths = [f"/api/{noun}/%2F" for noun in nouns]
    paths += ["/api/queues/%2F/q", "/api/exchanges/%2F/amq.topic", "/api/vhosts/%2F"]
    answers: Counter[int] = Counter()
    socks = [attacker.connect("http") for _ in range(8)]
    for _ in attacker.rounds():
        for path in paths:
            for sock in socks:
                sock.sendall(request(f"GET {path}", who=basic(MALLORY, MALLORY)))
            answers.update(status(sock) for sock in socks)
    assert not answers[200], told(answers)
    return told(answers)


def told_addresses(attacker: Attacker) -> str:
    """guest through a trusted proxy that tells of 127.0.0.1 and ::1."""
    answers: Counter[int] = Counter()
    CountingSocket.source = PROXY
    socks = [attacker.connect("http") for _ in range(8)]
    for number in attacker.rounds():
        address = (b"127.0.0.1", b"::1", b"::ffff:127.0.0.1", b"127.0.0.1, 203.0.113.7")[number % 4]
        for sock in socks:
            header = b"X-Forwarded-For: " + address
            sock.sendall(request("GET /api/whoami", header, who=basic("guest", "guest")))
        found = [status(sock) for sock in socks]
        answers.update(found)
        socks = [
            sock if answer else attacker.connect("http")
            for sock, answer in zip(socks, found, strict=True)
        ]
    assert not answers[200], told(answers)
    return told(answers)


def bad_hosts(attacker: Attacker) -> str:
    """Host headers that are none, on web and metrics ports."""
    answers: Counter[int] = Counter()
    before = len(attacker.appliance.log().splitlines())
    for number in attacker.rounds():
        for door in ("http", "metrics"):
            with attacker.connect(door) as sock:
                sock.sendall(b"GET / HTTP/1.1\r\nHost: \xff_%d\r\n\r\n" % number)
                answers[status(sock)] += 1
    written = attacker.appliance.log().splitlines()[before:]
    assert not [line for line in written if "Traceback" in line]
    return f"{told(answers)}; {len(written)} lines in the log"


def deep_live_requests(attacker: Attacker) -> str:
    """Live requests nested deep, with 1e400 and with numbers of 5,000 digits."""
    cookie = session(attacker)
    texts = [
        b"[" * 100_000,
        b'{"a":' * 5_000,
        b'{"type": "subscribe", "topic": "overview", "id": 1e400}',
        b'{"type": "subscribe", "topic": "overview", "id": ' + b"9" * 5_000 + b"}",
    ]
    ended = 0
    before = len(attacker.appliance.log().splitlines())
    for number in attacker.rounds():
        sock, _ = opened(attacker.appliance, "http", "/live/", Cookie=cookie)
        sock.sendall(frame(TEXT, texts[number % len(texts)]))
        sock.settimeout(10)
        received = b""
        with contextlib.suppress(OSError):
            while b"\x88" not in received and (data := sock.recv(1 << 16)):
                received += data
        ended += b"\x88" in received
        sock.close()
    written = len(attacker.appliance.log().splitlines()) - before
    assert ended == number + 1, f"{number + 1 - ended} of {number + 1} stayed open"
    return f"{ended:,} sockets were ended, {written} lines in the log"

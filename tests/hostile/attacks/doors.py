"""Before and beside AMQP: PROXY headers, TLS, certificates, WebSockets, tickets, replies."""

from __future__ import annotations

import contextlib
import ssl
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from tests.amqp import raw
from tests.api.test_sessions import sign_in, token_for
from tests.hostile.attacks.attacker import MALLORY, PROXY, Attacker, drain, told
from tests.hostile.attacks.findings import session
from tests.hostile.measuring import CountingSocket
from tests.hostile.sockets import BINARY, PING, TEXT, Flood, frame, last_words, opened
from tests.hostile.tls import hello_of
from tests.listeners.certificates import Authority
from tests.listeners.test_proxy import LOCAL, version_2

ADDRESS = bytes([127, 0, 0, 1])
LIES = [
    b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n",
    version_2(ADDRESS, ADDRESS),
    version_2(ADDRESS, ADDRESS, extra=b"\xee\0\0" * 150),
    LOCAL,
    b"PROXY " + b"x" * 10_000,
    b"PROXY TCP4 127.0.0.1",
]


def _signed_in(attacker: Attacker, door: str) -> Any:
    """A WebSocket with an open AMQP connection of mallory's."""
    sock, _ = opened(attacker.appliance, door)
    login = raw.start_ok(response=raw.plain_response(MALLORY, MALLORY))
    tune = raw.method(0, "connection.tune-ok", channel_max=9, frame_max=131072, heartbeat=0)
    opens = raw.method(0, "connection.open", virtual_host=MALLORY)
    data = raw.PROTOCOL_HEADER + login + tune + opens + raw.method(1, "channel.open")
    sock.sendall(frame(BINARY, data))
    answer = b""
    while b"\0\x14\0\x0b" not in answer:
        part = sock.recv(1 << 16)
        assert part, answer
        answer += part
    return sock


def proxy_lies(attacker: Attacker) -> str:
    """A trusted proxy's headers that tell of this machine, are too long or do not end."""
    CountingSocket.source = PROXY
    answers: Counter[str] = Counter()
    for number in attacker.rounds():
        waiting = []
        for lie in LIES:
            sock = attacker.connect("amqp")
            sock.sendall(lie + raw.PROTOCOL_HEADER + raw.start_ok())
            waiting.append((lie, sock))
        for lie, sock in waiting:
            if lie == LIES[-1] and number % 50:
                sock.close()
                continue
            found = drain(sock, 15)
            answers["let in" if b"\0\x0a\0\x1e" in found else "refused"] += 1
            sock.close()
    return told(answers)


def certificates(attacker: Attacker) -> str:
    """Certificates of an authority of the same name, expired ones, and EXTERNAL as a user that
    does not exist."""
    directory = Path(attacker.appliance.settings["tls_ca_file"]).parent
    authority = Authority.kept(directory)
    false = Authority(directory / "false")
    contexts = [
        authority.client_context(each)
        for each in (
            false.issue(MALLORY),
            authority.issue("expired", days=-1),
            authority.issue("nobody", subject="/CN=guest"),
        )
    ]
    answers: Counter[str] = Counter()
    for number in attacker.rounds():
        try:
            sock = attacker.connect("amqps")
            context = contexts[number % len(contexts)]
            with context.wrap_socket(sock, server_hostname="localhost") as peer:
                peer.sendall(raw.PROTOCOL_HEADER + raw.start_ok("EXTERNAL", b""))
                found = drain(peer, 15)
            answers["let in" if b"\0\x0a\0\x1e" in found else "refused"] += 1
        except (ssl.SSLError, ConnectionError):
            answers["shut out"] += 1
    assert not answers["let in"], told(answers)
    return told(answers)


def silent_handshakes(attacker: Attacker) -> str:
    """1,000 connections a port that say hello and no more, again when they are dropped."""
    hello = hello_of(Path(attacker.appliance.settings["tls_ca_file"]))
    dropped = 0
    for _ in attacker.rounds():
        socks = []
        for door in ("amqps", "https"):
            for _ in range(attacker.count(1000)):
                with contextlib.suppress(OSError):
                    sock = attacker.connect(door)
                    sock.sendall(hello)
                    socks.append(sock)
        for sock in socks:
            drain(sock, 15)
            sock.close()
        dropped += len(socks)
    return f"{dropped:,} were dropped after tls_handshake_timeout"


def whole_handshakes(attacker: Attacker) -> str:
    """Handshakes that are finished, one after the other, without a request."""
    context = ssl.create_default_context(cafile=str(attacker.appliance.settings["tls_ca_file"]))
    done = 0
    for number in attacker.rounds():
        sock = attacker.connect(("amqps", "https")[number % 2])
        with context.wrap_socket(sock, server_hostname="localhost"):
            done += 1
    return f"{done:,} handshakes"


def slow_handshakes(attacker: Attacker) -> str:
    """A hello in single bytes, on 200 connections at a time."""
    hello = hello_of(Path(attacker.appliance.settings["tls_ca_file"]))
    dropped = 0
    for _ in attacker.rounds():
        socks = [attacker.connect(("amqps", "https")[n % 2]) for n in range(200)]
        begun = time.monotonic()
        for octet in hello:
            for sock in socks:
                with contextlib.suppress(OSError):
                    sock.sendall(bytes([octet]))
            time.sleep(0.05)
            if time.monotonic() - begun > 7:
                break
        dropped += sum(drain(sock, 15) == b"" for sock in socks)
        for sock in socks:
            sock.close()
    return f"{dropped:,} were dropped"


def deflate_bombs(attacker: Attacker) -> str:
    """Compressed frames, with the extension offered, on every WebSocket."""
    offer = "permessage-deflate; server_no_context_takeover; client_max_window_bits=15"
    bomb = frame(BINARY, b"\xaa" * 60_000, compressed=True) * 20
    cookie = session(attacker)
    ended = 0
    for number in attacker.rounds():
        door, path = (("ws", "/amqp"), ("http", "/amqp"), ("http", "/live/"))[number % 3]
        sock, answer = opened(
            attacker.appliance, door, path, Sec_WebSocket_Extensions=offer, Cookie=cookie
        )
        assert b"sec-websocket-extensions" not in answer.lower()
        with contextlib.suppress(OSError):
            sock.sendall(bomb)
        last_words(sock)
        ended += 1
        sock.close()
    return f"{ended:,} sockets were ended, nothing was inflated"


def ping_floods(attacker: Attacker) -> str:
    """Pings of signed-in users on every WebSocket; who is cut off comes again."""
    cookie = session(attacker)
    data = frame(PING, b"x" * 125) * 1000
    cut = 0
    for _ in attacker.rounds():
        socks = [_signed_in(attacker, door) for door in ("ws", "http") for _ in range(4)]
        socks += [opened(attacker.appliance, "http", "/live/", Cookie=cookie)[0] for _ in range(4)]
        Flood(socks, data).wait()
        for sock in socks:
            last_words(sock)
            sock.close()
            cut += 1
    return f"{cut:,} sockets were cut off (ws_pings_max)"


def fragments_after_login(attacker: Attacker) -> str:
    """Heartbeats in fragments and frames of one byte, on eight signed-in WebSockets."""
    socks = [_signed_in(attacker, door) for door in ("ws", "http") for _ in range(4)]
    beat = b"".join(frame(BINARY, bytes([octet])) for octet in raw.frame(8, 0, b""))
    flood = Flood(socks, beat * 10_000, endless=True)
    time.sleep(attacker.seconds)
    alive = flood.alive
    flood.stop()
    return f"{alive} still sent"


def unfinished_messages(attacker: Attacker) -> str:
    """A WebSocket message that lacks its last byte on each of 100 signed-in connections."""
    most = attacker.limit("ws_message_max")
    data = frame(BINARY, bytes(most - 1024), length=most - 1000)
    socks = [_signed_in(attacker, "ws") for _ in range(attacker.count(100))]
    flood = Flood(socks, data)
    flood.wait()
    time.sleep(attacker.seconds)
    for sock in socks:
        sock.close()
    return f"{len(socks)} messages of {most >> 20} MiB"


def live_unfinished(attacker: Attacker) -> str:
    """The same on 100 live pages."""
    cookie = session(attacker)
    socks = [
        opened(attacker.appliance, "http", "/live/", Cookie=cookie)[0]
        for _ in range(attacker.count(100))
    ]
    Flood(socks, frame(TEXT, b"x" * 520_000, length=520_001)).wait()
    time.sleep(attacker.seconds)
    for sock in socks:
        sock.close()
    return f"{len(socks)} messages of 520,000 bytes"


def tickets_twice(attacker: Attacker) -> str:
    """Each ticket of the console, used twice, and as a password of the HTTP API."""
    answers: Counter[str] = Counter()
    with httpx.Client(base_url=attacker.appliance.http_url, timeout=60) as client:
        assert sign_in(client, MALLORY, MALLORY).status_code == 302
        token = token_for(client)
        for _ in attacker.rounds():
            made = client.post("/console/ticket", headers={"X-CSRFToken": token})
            if made.status_code != 200:
                answers[f"{made.status_code} for a ticket"] += 1
                continue
            password = made.json()["ticket"]
            for time_ in ("first", "second"):
                sock = attacker.connect("amqp")
                response = raw.plain_response(MALLORY, password)
                sock.sendall(raw.PROTOCOL_HEADER + raw.start_ok(response=response))
                found = b""
                with contextlib.suppress(OSError):
                    while b"\0\x0a\0\x1e" not in found and (part := sock.recv(4096)):
                        found += part
                let_in = b"\0\x0a\0\x1e" in found
                sock.close()
                assert not (time_ == "second" and let_in), "a ticket let in twice"
                answers[f"{time_} use {'let in' if let_in else 'refused'}"] += 1
    return told(answers)


def replies_to_others(attacker: Attacker) -> str:
    """Replies to guessed names, and to one that is known, whose owner reads nothing."""
    pseudo = "amq.rabbitmq.reply-to"
    requester = attacker.amqp()
    requester.call(1, "queue.declare", queue="requests", exclusive=True)
    requester.call(1, "basic.consume", queue=pseudo, no_ack=True)
    requester.publish(1, "", "requests", b"", reply_to=pseudo)
    message = requester.get(1, "requests", no_ack=True)
    assert message is not None
    name = message.properties["reply_to"]
    other = attacker.amqp()
    guessed = 0
    for number in attacker.rounds():
        pieces = [
            raw.publish(1, "", f"{name[:-7]}{number * 100 + n:07}", b"false") for n in range(100)
        ]
        pieces.append(raw.publish(1, "", name, bytes(100_000)) * 10)
        other.send(b"".join(pieces))
        other.fence(1)
        guessed += 100
    return f"{guessed:,} guesses, {guessed * 10_000 // 2**20:,} MiB to one who does not read"

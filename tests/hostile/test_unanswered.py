"""A client that asks for more than it reads answers to."""

from __future__ import annotations

import select
import socket

import pytest

from tests.amqp import raw
from tests.amqp.raw import Client
from tests.conftest import Make

MESSAGES, SIZE = 400, 50_000
"""More than the sockets take and than waits in the broker as frames; and not so long that the
receive buffer of the broker may grow (`broker/server/rests.py`)."""
MOST = 12_000_000
"""Octets of methods. The sockets take less than half of that."""


@pytest.mark.parametrize(
    ("first", "rest", "answer"),
    [
        (b"", raw.method(1, "basic.get", queue="q", no_ack=True), "basic.get-empty"),
        (
            raw.method(1, "basic.get", queue="q", no_ack=True) * (MESSAGES + 1),
            raw.method(1, "basic.qos", prefetch_count=1),
            "basic.qos-ok",
        ),
    ],
    ids=["gets", "methods behind gets"],
)
def test_methods_whose_answers_wait_are_read_up_to_a_limit_and_all_are_answered(
    make_broker: Make, first: bytes, rest: bytes, answer: str
) -> None:
    broker = make_broker(unanswered_max="1000")
    with Client.open((broker.host, broker.amqp_port), timeout=60) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        client.call(1, "queue.declare", queue="q")
        for _ in range(MESSAGES):
            client.publish(1, "", "q", bytes(SIZE))
        client.socket.sendall(first)
        part = rest * 1_000
        sent = 0
        client.socket.setblocking(False)
        while sent < MOST and select.select([], [client.socket], [], 2)[1]:
            at = sent % len(part)
            sent += client.socket.send(part[at:])
        assert sent < MOST
        client.socket.settimeout(60)
        asked = len(first) // len(raw.method(1, "basic.get", queue="q", no_ack=True))
        wanted = asked + sent // len(rest)
        names = []
        for _ in range(wanted):
            got = client.read_method()
            if got.name == "basic.get-ok":
                client.read_content(got)
            names.append(got.name)
        assert names[:MESSAGES] == ["basic.get-ok"] * MESSAGES
        assert names[-1] == answer
        # The rest of a method that was sent in part, and one more.
        client.send(rest[sent % len(rest) :] if sent % len(rest) else rest)
        assert client.read_method().name == answer
    broker.close()

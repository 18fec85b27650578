"""Many requests of one address at the same time: another's does not wait behind all of them."""

from __future__ import annotations

import asyncio
import http.client
import select
import socket

from management.turns import Turns
from tests.appliance import Appliance

MANY = 40


def connected(leveret: Appliance, source: str) -> socket.socket:
    """A connection that was used once, so that it is accepted."""
    address = (leveret.host, leveret.http_port)
    sock = socket.create_connection(address, 60, source_address=(source, 0))
    ask(sock)
    answer(sock)
    return sock


def ask(sock: socket.socket) -> None:
    sock.sendall(b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\n")


def answer(sock: socket.socket) -> None:
    found = http.client.HTTPResponse(sock)
    found.begin()
    found.read()
    assert found.status == 200


def test_a_request_waits_for_few_of_another_address(shared_leveret: Appliance) -> None:
    many = [connected(shared_leveret, "127.0.0.3") for _ in range(MANY)]
    other = connected(shared_leveret, "127.0.0.1")
    for sock in many:
        ask(sock)
    ask(other)
    answer(other)
    answered, _, _ = select.select(many, [], [], 0)
    # Those that began before it came are among them. All forty without turns.
    assert len(answered) < MANY // 2
    for sock in many:
        answer(sock)
        sock.close()
    other.close()


async def test_one_begins_in_a_turn_and_addresses_take_turns() -> None:
    turns = Turns()
    begun: list[str] = []

    async def request(name: str) -> None:
        await turns.take(name[0])
        begun.append(name)

    tasks = [asyncio.create_task(request(f"a{number}")) for number in range(5)]
    tasks += [asyncio.create_task(request(name)) for name in ("b0", "b1", "c0")]
    counts = []
    while len(begun) < len(tasks):
        before = len(begun)
        await asyncio.sleep(0)
        counts.append(len(begun) - before)
    assert begun == ["a0", "a1", "b0", "c0", "a2", "b1", "a3", "a4"]
    assert max(counts) == 1


async def test_what_ended_while_it_waited_takes_no_turn() -> None:
    turns = Turns()
    await turns.take("a")
    waiting = [asyncio.create_task(turns.take("a")) for _ in range(3)]
    last = asyncio.create_task(turns.take("b"))
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    await last
    assert len(turns) == 0

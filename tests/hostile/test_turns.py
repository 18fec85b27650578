"""Many requests of one address at the same time: another's does not wait behind all of them."""

from __future__ import annotations

import asyncio
import http.client
import select
import socket
from collections.abc import Callable
from contextvars import Context
from typing import Any

import pytest

from management import web
from management.turns import ADDRESS, TURN_S, Turns
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


def stepping(turns: Turns, done: list[str]) -> Callable[[str], None]:
    """A step of the address that is the name's first letter."""
    loop = asyncio.get_running_loop()
    return lambda name: turns.step(name[0], asyncio.Handle(done.append, (name,), loop), loop)


async def test_addresses_take_turns_and_what_is_new_waits_for_what_has_begun() -> None:
    turns = Turns(clock=lambda: 0.0)
    done: list[str] = []
    step = stepping(turns, done)
    turns.begin("a", done.append, "a new")
    for name in ("a0", "a1", "a2", "b0", "b1", "c0"):
        step(name)
    await asyncio.sleep(0)
    assert done == ["a0", "b0", "c0", "a1", "b1", "a2", "a new"]


async def test_a_turn_of_the_loop_has_few_steps() -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += TURN_S
        return now

    turns = Turns(clock)
    done: list[str] = []
    step = stepping(turns, done)
    for number in range(10):
        step(f"a{number}")
    counts = []
    while len(turns):
        before = len(done)
        await asyncio.sleep(0)
        counts.append(len(done) - before)
    assert counts == [1] * 10


async def test_what_ended_while_it_waited_takes_no_turn() -> None:
    turns = Turns()
    waiting = [asyncio.create_task(turns.take("a")) for _ in range(3)]
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    await asyncio.wait_for(turns.take("b"), 30)
    assert len(turns) == 0


def test_tasks_of_a_request_work_in_its_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the loop of the web process: also those that it makes, and what they wait for."""
    stepped: list[str] = []
    whole = Turns.step

    def step(self: Turns, address: str, handle: asyncio.Handle, loop: Any) -> None:
        stepped.append(address)
        whole(self, address, handle, loop)

    monkeypatch.setattr(Turns, "step", step)

    async def work() -> None:
        ADDRESS.set("192.0.2.1")
        await asyncio.create_task(asyncio.sleep(0))

    async def other() -> None:
        before = len(stepped)
        await asyncio.create_task(asyncio.sleep(0))
        assert len(stepped) == before

    with asyncio.Runner(loop_factory=web._Loop) as runner:
        runner.run(work())
        assert len(stepped) >= 2
        assert set(stepped) == {"192.0.2.1"}
        runner.run(other(), context=Context())


def test_a_loop_that_ends_ends_tasks_of_requests() -> None:
    ended: list[str] = []

    async def request() -> None:
        ADDRESS.set("192.0.2.1")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("request")

    async def work() -> asyncio.Task[None]:
        task = asyncio.create_task(request())
        await asyncio.sleep(0)
        return task

    with asyncio.Runner(loop_factory=web._Loop) as runner:
        task = runner.run(work())
    assert task.cancelled()
    assert ended == ["request"]


async def test_a_turn_looks_at_few_sockets_and_at_others_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[int] = []
    monkeypatch.setattr(
        asyncio.SelectorEventLoop, "_process_events", lambda self, ready: seen.extend(ready)
    )
    loop = web._Loop()
    try:
        for _ in range(4):
            loop._process_events(list(range(100)))
            loop._process_events(list(range(web.EVENTS_AT_ONCE)))
    finally:
        loop.close()
    assert len(seen) == 8 * web.EVENTS_AT_ONCE
    assert set(seen) == set(range(100))

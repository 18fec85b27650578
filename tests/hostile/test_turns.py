"""Many requests of one address at the same time: another's does not wait behind all of them."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import select
import socket
from collections.abc import Callable
from contextvars import Context
from typing import Any

import pytest
from django.test import override_settings

from broker.settings.config import Config
from management.client_scheduler import ADDRESS, ClientScheduler, scheduler_of
from management.event_loop import EventLoop
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


def stepping(turns: ClientScheduler, done: list[str]) -> Callable[[str], None]:
    """A step of the address that is the name's first letter."""
    loop = asyncio.get_running_loop()
    return lambda name: turns.step(name[0], asyncio.Handle(done.append, (name,), loop), loop)


async def test_addresses_take_turns_and_what_is_new_waits_for_what_has_begun() -> None:
    turns = ClientScheduler(lambda: 1.0, clock=lambda: 0.0)
    done: list[str] = []
    step = stepping(turns, done)
    turns.begin("a", done.append, "a new")
    for name in ("a0", "a1", "a2", "b0", "b1", "c0"):
        step(name)
    await asyncio.sleep(0)
    assert done == ["a0", "b0", "c0", "a1", "b1", "a2", "a new"]


class Work:
    """Steps that take as many seconds as their name says."""

    def __init__(self) -> None:
        self.now = 0.0
        self.done: list[str] = []
        self.turns = ClientScheduler(lambda: 1_000.0, lambda: self.now)

    def step(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        self.turns.step(name[0], asyncio.Handle(self.work, (name,), loop), loop)

    def work(self, name: str) -> None:
        self.now += int(name[1:])
        self.done.append(name)


async def test_addresses_have_equal_parts_of_the_time_however_long_their_steps_are() -> None:
    work = Work()
    for name in (*["a8"] * 5, *["b1"] * 20):
        work.step(name)
    await asyncio.sleep(0)
    assert work.done == ["a8", *["b1"] * 8, "a8", *["b1"] * 8, "a8", *["b1"] * 4, "a8", "a8"]


async def test_who_comes_again_owes_what_it_took_for_as_long_as_others_wait() -> None:
    work = Work()
    loop = asyncio.get_running_loop()
    again = asyncio.Handle(lambda _: work.step("a8"), (None,), loop)
    for name in ("a8", *["b1"] * 3):
        work.step(name)
    work.turns.step("c", again, loop)
    for name in ["b1"] * 7:
        work.step(name)
    await asyncio.sleep(0)
    assert work.done == ["a8", *["b1"] * 8, "a8", *["b1"] * 2]
    work.done.clear()
    for name in ("a8", "b1"):
        work.step(name)
    await asyncio.sleep(0)
    assert work.done == ["a8", "b1"], "nothing was owed any more"


async def test_a_turn_of_the_loop_has_few_steps() -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 0.001
        return now

    turns = ClientScheduler(lambda: 0.001, clock)
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


async def test_handshakes_of_an_address_wait_for_its_others_but_not_for_ever() -> None:
    turns = ClientScheduler(lambda: 1.0, clock=lambda: 0.0)
    done: list[str] = []
    step = stepping(turns, done)
    for number in range(4):
        turns.shake("a", done.append, f"a shaken {number}")
    for number in range(8):
        step(f"a{number}")
    turns.begin("a", done.append, "a new")
    await asyncio.sleep(0)
    assert [done.index(f"a shaken {number}") for number in range(4)] == [3, 7, 11, 12]
    others = [each for each in done if "shaken" not in each]
    assert others == [*(f"a{number}" for number in range(8)), "a new"]


async def test_what_ended_while_it_waited_takes_no_turn() -> None:
    turns = ClientScheduler(lambda: 1.0)
    waiting = [asyncio.create_task(turns.take("a")) for _ in range(3)]
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    await asyncio.wait_for(turns.take("b"), 30)
    assert len(turns) == 0


def test_tasks_of_a_request_work_in_its_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the loop of the web process: also those that it makes, and what they wait for."""
    stepped: list[str] = []
    whole = ClientScheduler.step

    def step(self: ClientScheduler, address: str, handle: asyncio.Handle, loop: Any) -> None:
        stepped.append(address)
        whole(self, address, handle, loop)

    monkeypatch.setattr(ClientScheduler, "step", step)

    async def work() -> None:
        ADDRESS.set("192.0.2.1")
        await asyncio.create_task(asyncio.sleep(0))

    async def other() -> None:
        before = len(stepped)
        await asyncio.create_task(asyncio.sleep(0))
        assert len(stepped) == before

    with override_settings(APPLIANCE=Config()), asyncio.Runner(loop_factory=EventLoop) as runner:
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

    with override_settings(APPLIANCE=Config()), asyncio.Runner(loop_factory=EventLoop) as runner:
        task = runner.run(work())
    assert task.cancelled()
    assert ended == ["request"]


class Reads:
    """Whose bytes were read, one after the other."""

    def __init__(self) -> None:
        self.of: list[str] = []
        self._came = asyncio.Event()

    def note(self, peer: str) -> None:
        self.of.append(peer)
        self._came.set()

    async def reach(self, count: int) -> None:
        while len(self.of) < count:
            self._came.clear()
            await self._came.wait()


class Told(asyncio.Protocol):
    """Notes who sent something."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._peer = transport.get_extra_info("peername")[0]

    def data_received(self, data: bytes) -> None:
        self._reads.note(self._peer)


async def reading(asks: bool) -> list[str]:
    """Whose bytes are read when thirty connections of 127.0.0.3 have sent some and then one of
    127.0.0.1; and, if this process `asks` another, then its answer comes from 127.0.0.1, too."""
    loop = asyncio.get_running_loop()
    reads = Reads()
    server = await loop.create_server(lambda: Told(reads), "127.0.0.1", 0)
    with contextlib.ExitStack() as open_ones:
        open_ones.callback(server.close)
        socks = [
            open_ones.enter_context(
                socket.create_connection(
                    server.sockets[0].getsockname(), 30, source_address=(source, 0)
                )
            )
            for source in (*["127.0.0.3"] * 30, "127.0.0.1")
        ]
        for sock in socks:
            sock.sendall(b"x")
        await reads.reach(len(socks))
        reads.of.clear()
        if asks:
            asked = open_ones.enter_context(socket.create_server(("127.0.0.1", 0)))
            await loop.create_connection(lambda: Told(reads), *asked.getsockname())
            answering = open_ones.enter_context(asked.accept()[0])
        for sock in socks:
            sock.sendall(b"x")
        if asks:
            answering.sendall(b"x")
        await reads.reach(len(socks) + asks)
    return reads.of


def test_sockets_are_read_in_turn_by_address() -> None:
    with override_settings(APPLIANCE=Config()), asyncio.Runner(loop_factory=EventLoop) as runner:
        read = runner.run(reading(asks=False))
    assert sorted(read) == ["127.0.0.1", *["127.0.0.3"] * 30]
    assert "127.0.0.1" in read[:2]


def test_an_answer_that_was_asked_for_is_read_before_what_clients_send() -> None:
    """The broker's, in the web process: who waits for it waits for no reading."""
    with override_settings(APPLIANCE=Config()), asyncio.Runner(loop_factory=EventLoop) as runner:
        read = runner.run(reading(asks=True))
    assert len(read) == 32
    assert read[0] == "127.0.0.1"
    assert "127.0.0.1" in read[1:3]


def test_a_socket_that_closed_while_it_waited_is_not_read() -> None:
    """Its descriptor may be that of another connection by then."""
    reads = Reads()

    async def work() -> int:
        loop: Any = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Told(reads), "127.0.0.1", 0)
        with socket.create_connection(server.sockets[0].getsockname(), 30) as sock:
            sock.sendall(b"x")
            await reads.reach(1)
            sock.sendall(b"y")
            ready = [each for each in loop._selector.select(30) if each[0].data[0] is not None]
            loop._process_events(ready)
            ready[0][0].data[0]._callback.__self__.abort()
            await scheduler_of(loop).take("behind it")
        server.close()
        return len(loop._due)

    with override_settings(APPLIANCE=Config()), asyncio.Runner(loop_factory=EventLoop) as runner:
        assert runner.run(work()) == 0
    assert len(reads.of) == 1


def test_of_sockets_that_wait_the_selector_tells_once() -> None:
    """But for a few: hundreds of them would be most of each turn. All are read, again and again."""
    reads = Reads()

    async def work() -> int:
        loop: Any = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Told(reads), "127.0.0.1", 0)
        with contextlib.ExitStack() as open_ones:
            open_ones.callback(server.close)
            address = server.sockets[0].getsockname()
            socks = [
                open_ones.enter_context(socket.create_connection(address, 30)) for _ in range(MANY)
            ]
            for times in (1, 2):
                for sock in socks:
                    sock.sendall(b"x")
                await reads.reach(times * MANY)
            for sock in socks:
                sock.sendall(b"x")
            loop._process_events(loop._selector.select(30))
            again = len(loop._selector.select(0))
            await reads.reach(3 * MANY)
            return again

    with override_settings(APPLIANCE=Config()), asyncio.Runner(loop_factory=EventLoop) as runner:
        assert runner.run(work()) < MANY // 2
    assert len(reads.of) == 3 * MANY


def test_connections_are_made_in_turn_and_begin_in_that_of_their_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stepped: list[str] = []
    whole = ClientScheduler.step

    def step(self: ClientScheduler, address: str, handle: asyncio.Handle, loop: Any) -> None:
        stepped.append(address)
        whole(self, address, handle, loop)

    monkeypatch.setattr(ClientScheduler, "step", step)
    reads = Reads()

    async def work() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Told(reads), "127.0.0.1", 0)
        with socket.create_connection(server.sockets[0].getsockname(), 30) as sock:
            sock.sendall(b"x")
            await reads.reach(1)
        server.close()

    with override_settings(APPLIANCE=Config()), asyncio.Runner(loop_factory=EventLoop) as runner:
        runner.run(work())
    assert set(stepped) == {"accepting", "127.0.0.1"}
    assert reads.of == ["127.0.0.1"]

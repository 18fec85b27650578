"""However many clients send at once, a turn of the loop is short: who comes late waits for a turn.

Time is spent as a test says: callbacks burn it, or it is told that so much was spent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.kernel.turn import Turn
from broker.server.tcp import RECEIVE_BYTES, SocketProtocol
from tests.amqp import raw
from tests.fuzz.inside import Inside, Wire

LONG_NS = 1_000_000_000
"""More than any turn may take."""


class Loop:
    """Callbacks of the turns to come."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], None]] = []

    def turn(self) -> None:
        """Calls what was scheduled before this turn."""
        due, self.callbacks = self.callbacks, []
        for callback in due:
            callback()


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def turn(loop: Loop) -> Turn:
    made = Turn(lambda callback: loop.callbacks.append(callback), lambda: None)
    made.is_sliced = True
    return made


def burn(seconds: float = 0.0011) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def test_those_who_wait_are_served_in_order_some_in_a_turn(loop: Loop, turn: Turn) -> None:
    served: list[int] = []

    def wait(number: int) -> None:
        def serve() -> None:
            burn()
            served.append(number)

        turn.next_in_line(serve)

    for number in range(12):
        wait(number)
    in_turns = []
    while loop.callbacks:
        before = len(served)
        loop.turn()
        in_turns.append(len(served) - before)
    assert served == list(range(12))
    # Each takes more than the line has in a turn.
    assert in_turns == [1] * 12


def test_who_waits_again_comes_behind_the_others(loop: Loop, turn: Turn) -> None:
    served: list[str] = []

    def greedy() -> None:
        served.append("greedy")
        burn()
        if len(served) < 20:
            turn.next_in_line(greedy)

    turn.next_in_line(greedy)
    for number in range(4):
        turn.next_in_line(lambda number=number: served.append(str(number)))  # type: ignore[misc]
    while loop.callbacks:
        loop.turn()
    assert served[:6] == ["greedy", "0", "1", "2", "3", "greedy"]


def test_who_comes_while_others_are_served_does_not_stand_in_line_behind_them(
    loop: Loop, turn: Turn
) -> None:
    served: list[str] = []
    for _ in range(5):
        turn.next_in_line(burn)
    loop.turn()
    assert not turn.late
    turn.when_there_is_time(lambda: served.append("who came"))
    assert served == ["who came"]


def test_a_failure_in_the_line_keeps_no_other_from_its_turn(loop: Loop, turn: Turn) -> None:
    served: list[str] = []
    turn.next_in_line(lambda: 1 // 0)  # type: ignore[arg-type, return-value]
    turn.next_in_line(lambda: served.append("next"))
    while loop.callbacks:
        loop.turn()
    assert served == ["next"]


def test_what_very_many_ask_at_once_is_done_some_in_a_turn_in_order(loop: Loop, turn: Turn) -> None:
    done: list[int] = []

    def ask(number: int) -> None:
        def carry_out() -> None:
            burn()
            done.append(number)

        turn.when_there_is_time(carry_out)

    for number in range(12):
        ask(number)
    in_turns = [len(done)]
    while loop.callbacks:
        before = len(done)
        loop.turn()
        in_turns.append(len(done) - before)
    assert done == list(range(12))
    assert max(in_turns) <= 2


def test_a_turn_without_a_loop_has_no_bound(turn: Turn) -> None:
    turn.is_sliced = False
    turn.spend(LONG_NS)
    assert not turn.late


async def answered(wire: Wire, words: bytes) -> None:
    async with asyncio.timeout(30):
        while words not in wire.out:  # noqa: ASYNC110 (it tells nobody)
            await asyncio.sleep(0)


async def test_what_comes_late_is_carried_out_in_the_next_turn(tmp_path: Path) -> None:
    inside = Inside(tmp_path / "data", 1)
    await inside.start()
    try:
        (first, one), (second, other) = inside.wires[:2]
        turn = inside.broker.turn
        vhost = inside.broker.vhosts["/"]
        turn.spend(LONG_NS)
        assert turn.late
        for number, session in enumerate((one, other)):
            data = raw.method(1, "queue.declare", queue=f"late-{number}")
            # Cut anywhere, and more comes while it waits.
            session.feed(data[:9])
            session.feed(data[9:])
        assert not {"late-0", "late-1"} & set(vhost.queues)
        await answered(first, b"late-0")
        await answered(second, b"late-1")
        assert not turn.late
    finally:
        inside.leave()
        await inside.broker.stop()


async def test_little_is_read_of_those_who_come_late(tmp_path: Path) -> None:
    inside = Inside(tmp_path / "data", 1)
    await inside.start()
    try:
        door = SocketProtocol(inside.broker, "amqp", None)  # type: ignore[arg-type]
        assert len(door.get_buffer(-1)) == RECEIVE_BYTES
        inside.broker.turn.spend(LONG_NS)
        assert len(door.get_buffer(-1)) == 4096
        # What came behind a proxy's header has to fit.
        assert len(door.get_buffer(100_000)) == RECEIVE_BYTES
    finally:
        inside.leave()
        await inside.broker.stop()


async def test_what_is_thrown_away_takes_time_of_the_turn(tmp_path: Path) -> None:
    """A hundred connections that were closed and send on made turns of 15 ms."""
    inside = Inside(tmp_path / "data", 1)
    await inside.start()
    try:
        wire, session = inside.wires[0]
        door = SocketProtocol(inside.broker, "amqp", None)  # type: ignore[arg-type]
        session.feed(b"\xff" * 20)
        await answered(wire, b"frame_too_large")
        for _ in range(40):
            session.feed(bytes(RECEIVE_BYTES))
        assert len(door.get_buffer(-1)) == 4096
        async with asyncio.timeout(30):
            while len(door.get_buffer(-1)) == 4096:  # noqa: ASYNC110 (it tells nobody)
                await asyncio.sleep(0)
    finally:
        inside.leave()
        await inside.broker.stop()


async def test_logins_that_are_checked_in_one_turn_are_answered_in_several(tmp_path: Path) -> None:
    inside = Inside(tmp_path / "data", 1)
    await inside.start()
    try:
        later: list[Callable[[], None]] = []
        answers: list[str] = []
        connection: Any = SimpleNamespace(
            peer=("192.0.2.1", 1),
            listener="amqp",
            proxied=False,
            client_properties={},
            when_there_is_time=later.append,
            login_refused=answers.append,
        )
        checks = [inside.broker.login(connection, "unknown", "x") for _ in range(3)]
        async with asyncio.timeout(30):
            await asyncio.gather(*checks)
        assert not answers
        assert len(later) == 3
        for answer in later:
            answer()
        assert len(answers) == 3
    finally:
        inside.leave()
        await inside.broker.stop()


async def test_clients_that_leave_late_in_a_turn_end_in_the_next(tmp_path: Path) -> None:
    """489 that left at once, of 2,047 channels each, made a turn of 249 ms."""
    inside = Inside(tmp_path / "data", 2)
    await inside.start()
    try:
        (_, one), (_, other) = inside.wires[:2]
        turn, connections = inside.broker.turn, inside.broker.connections
        turn.spend(LONG_NS)
        for session in (one, other):
            session.lost("it left")
        assert one.id in connections and other.id in connections
        assert not one.is_open and not other.is_open
        async with asyncio.timeout(30):
            while {one.id, other.id} & {*connections}:  # noqa: ASYNC110 (it tells nobody)
                await asyncio.sleep(0)
        assert one.close_reason == "it left"
    finally:
        inside.leave()
        await inside.broker.stop()


async def test_sockets_that_end_late_in_a_turn_are_closed_in_the_next(tmp_path: Path) -> None:
    inside = Inside(tmp_path / "data", 1)
    await inside.start()
    try:
        wire, session = inside.wires[0]
        protocol = SocketProtocol(inside.broker, "amqp", None)  # type: ignore[arg-type]
        protocol._connection = session
        inside.broker.turn.spend(LONG_NS)
        assert protocol.eof_received()
        assert session.is_open
        async with asyncio.timeout(30):
            while not wire.ended:  # noqa: ASYNC110 (the same)
                await asyncio.sleep(0)
            # What the close took is of the turn that it was in.
            inside.broker.turn.wake()
            while inside.broker.turn.late:  # noqa: ASYNC110 (the same)
                await asyncio.sleep(0)
        assert not protocol.eof_received()
        assert not session.is_open
    finally:
        inside.leave()
        await inside.broker.stop()

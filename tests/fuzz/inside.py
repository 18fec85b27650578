"""A whole broker in this process, fed with mutated pieces of sessions without a socket between.

A connection that a mutant did not end takes the next one. A turn is measured by the CPU time of the
thread; the queues, exchanges and bindings that mutants make are deleted now and then, so that what
the process still holds is what was not given back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from broker.server.app import Broker
from broker.settings.config import Config
from tests.amqp import raw
from tests.fuzz import sessions
from tests.fuzz.found import (
    GROWTH_MAX,
    TURN_MAX_S,
    Count,
    FoundError,
    batches,
    chance_of,
    corpus,
    keep,
)
from tests.fuzz.mutations import mutate
from tests.hostile.figures import resident_bytes
from tests.inside import Wire

DOOR = "amqp-inside"
SIDE_BY_SIDE = 8
TIDY_EVERY = 2_000
CHANNEL_CLOSE = b"\x00\x14\x00\x28"
CLOSE_OK = b"".join(
    raw.method(channel, "channel.close-ok") + raw.method(channel, "channel.open")
    for channel in (1,)
)


class Errors(logging.Handler):
    """Keeps what the broker logs as its own mistakes."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info or "internal error" in record.getMessage():
            formatter = logging.Formatter()
            self.found.append(formatter.format(record)[-2000:])


class Inside:
    """The broker on `directory`, and its connections."""

    def __init__(self, directory: Path, seed: int) -> None:
        config = Config(
            data_dir=directory,
            amqp_port=0,
            ws_port=0,
            http_port=0,
            metrics_port=0,
            disk_reserve=0,
            no_sync=True,
        )
        self.broker = Broker(config)
        self.seed = seed
        self.errors = Errors()
        self.count = Count()
        self.wires: list[tuple[Wire, Any]] = []
        self.vhosts = 0

    async def start(self) -> None:
        self.broker.recover()
        await self.broker.start()
        asyncio.get_running_loop().set_exception_handler(
            lambda _loop, context: self.errors.found.append(repr(context)[:2000])
        )
        for _ in range(SIDE_BY_SIDE):
            self.wires.append(await self.connect())

    async def connect(self) -> tuple[Wire, Any]:
        """A connection with channel 1 open. Raises FoundError if there is none within 10 s."""
        wire = Wire()
        session = self.broker.accept(wire, ("127.0.0.1", 1), ("127.0.0.1", 2), "amqp")
        session.feed(b"".join(sessions.opening()))
        until = time.monotonic() + 60
        while b"\x00\x14\x00\x0b" not in wire.out:  # channel.open-ok
            if time.monotonic() > until or wire.ended:
                raise FoundError(f"a good client cannot log in: {bytes(wire.out[-300:])!r}")
            await asyncio.sleep(0)
        wire.out.clear()
        return wire, session

    def mutant(self, number: int) -> bytes:
        """One to three pieces of a session, changed."""
        chance = chance_of(self.seed, DOOR, number)
        kind = chance.choice(sessions.KINDS)
        pieces = sessions.work(kind, chance.randrange(28))
        picked = chance.sample(pieces, chance.choice((1, 1, 2, 3)))
        return mutate(chance, b"".join(picked))

    async def feed(self, slot: int, data: bytes, name: str) -> None:
        """Gives a mutant to a connection, and opens another where it ended that."""
        _, session = self.wires[slot]
        begun = time.thread_time()
        try:
            session.feed(data)
        except Exception as error:
            raise FoundError(
                f"{name}: {type(error).__name__}: {error}; corpus {keep(DOOR, data).name}"
            ) from error
        took = time.thread_time() - begun
        self.count.longest = max(self.count.longest, took)
        if took > TURN_MAX_S and len(self.count.findings) < 20:
            text = f"{name}: takes {took * 1000:.1f} ms; corpus {keep(DOOR, data).name}"
            self.count.findings.append(text)
        self.count.mutants += 1
        self.count.octets += len(data)

    async def go(self, first: int, number_of: int, until: float) -> None:
        """Mutants `first` to `first + number_of`, or as many as there is time for. Raises
        FoundError."""
        begun, grown_from = time.monotonic(), 0
        for number, data in enumerate(corpus(DOOR)):
            await self.feed(number % SIDE_BY_SIDE, data, f"corpus {number}")
            await self.settle(range(number, number + 1))
        for numbers in batches(first, number_of, SIDE_BY_SIDE):
            for number in numbers:
                await self.feed(number % SIDE_BY_SIDE, self.mutant(number), f"mutant {number}")
            await self.settle(numbers)
            if numbers.stop // TIDY_EVERY != numbers.start // TIDY_EVERY:
                await self.tidy()
                if time.monotonic() > until:
                    break
                if not grown_from and numbers.stop - first > number_of // 10:
                    grown_from = resident_bytes(os.getpid())
        self.count.seconds += time.monotonic() - begun
        await self.tidy()
        grown = resident_bytes(os.getpid()) - grown_from
        if grown_from and grown > GROWTH_MAX:
            self.count.findings.append(f"memory grew by {grown >> 20} MiB")

    async def settle(self, numbers: range) -> None:
        """Lets the loop take its turns, answers closed channels, replaces ended connections."""
        for _ in range(2):
            begun = time.thread_time()
            await asyncio.sleep(0)
            self.count.longest = max(self.count.longest, time.thread_time() - begun)
        if self.errors.found:
            where = f"seed {self.seed}, mutants {numbers.start} to {numbers.stop}"
            raise FoundError(f"{where}: {self.errors.found[0]}")
        for slot, (wire, session) in enumerate(self.wires):
            if wire.ended:
                session.lost("the socket ended")
                self.wires[slot] = await self.connect()
            elif CHANNEL_CLOSE in wire.out:
                session.feed(CLOSE_OK)
            wire.out.clear()

    def leave(self) -> None:
        """Ends all connections."""
        for wire, session in self.wires:
            if not wire.ended:
                session.drop()
            session.lost("done")
        self.wires.clear()

    async def tidy(self) -> None:
        """Ends all connections and deletes what they have made; a good client is served."""
        self.leave()
        vhost = self.broker.vhosts["/"]
        for queue in list(vhost.queues):
            vhost.delete_queue(queue)
        for name in list(vhost.exchanges):
            if name and not name.startswith("amq."):
                vhost.delete_exchange(name)
        await asyncio.wait_for(self.broker.synced(), 60)
        while self.broker.persister.under_pressure:  # noqa: ASYNC110 (it tells nobody)
            await asyncio.sleep(0.01)
        for _ in range(SIDE_BY_SIDE):
            self.wires.append(await self.connect())
        await self.probe()

    async def probe(self) -> None:
        """Publishes a message and gets it. Raises FoundError."""
        wire, session = await self.connect()
        session.feed(
            raw.method(1, "queue.declare", queue="probe", exclusive=True)
            + raw.publish(1, "", "probe", b"well?", delivery_mode=2)
            + raw.method(1, "basic.get", queue="probe", no_ack=True)
        )
        until = time.monotonic() + 60
        while b"well?" not in wire.out:
            if time.monotonic() > until or wire.ended:
                raise FoundError(f"a good client is not served: {bytes(wire.out[-300:])!r}")
            await asyncio.sleep(0)
        session.drop()
        session.lost("done")


@contextlib.contextmanager
def told_to(errors: Errors) -> Iterator[None]:
    """The broker's log goes to `errors` alone, and afterwards where it went before."""
    loggers = [logging.getLogger(name) for name in ("leveret", "asyncio", "broker")]
    before = [(log.level, log.propagate) for log in loggers]
    for log in loggers:
        log.addHandler(errors)
        log.propagate = False
    loggers[0].setLevel(logging.ERROR)
    try:
        yield
    finally:
        for log, (level, propagate) in zip(loggers, before, strict=True):
            log.removeHandler(errors)
            log.setLevel(level)
            log.propagate = propagate


def fuzz(directory: Path, seed: int, first: int, number_of: int, until: float = math.inf) -> Count:
    """Runs the mutants in a loop of its own; what was found is in the count."""

    async def go() -> Count:
        inside = Inside(directory, seed)
        with told_to(inside.errors):
            await inside.start()
            try:
                await inside.go(first, number_of, until)
            except FoundError as error:
                inside.count.findings.append(str(error))
            inside.leave()
            await inside.broker.stop()
        return inside.count

    random.seed(seed)
    return asyncio.run(go())

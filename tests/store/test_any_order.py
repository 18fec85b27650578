"""Any order of what clients ask of a queue while writes to the disk are held up."""

from __future__ import annotations

import gc
import random
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store import recorder
from tests.store.driven import Driven, Taker

SEGMENT = 2048
OPERATIONS = (
    "publish",
    "get",
    "settle",
    "requeue",
    "purge",
    "turn",
    "sync",
    "rest",
    "hold",
    "tick",
)
SHARES = (8, 10, 6, 1, 3, 4, 0.5, 0.5, 1.5, 0.2)


@pytest.fixture(autouse=True)
def free_disk() -> Iterator[None]:
    yield
    recorder.stall("write", 0)
    gc.collect()  # what a killed queue has open is closed with its objects


class Game:
    """A queue and what came of each of its messages. Messages are told apart by their bodies."""

    def __init__(self, directory: Path, choose: random.Random) -> None:
        self.choose = choose
        self.arguments = {"x-max-priority": 3} if choose.random() < 0.25 else {}
        self.driven = Driven(directory, SEGMENT, arguments=self.arguments)
        self.published: dict[bytes, bool] = {}
        """Whether each is persistent."""
        self.asked: list[Taker] = []
        self.taken: list[Taker] = []
        self.settled: set[bytes] = set()
        self.purged = 0

    def play(self, steps: int) -> None:
        for _ in range(steps):
            getattr(self, self.choose.choices(OPERATIONS, SHARES)[0])()
            assert self.driven.failed is None
        recorder.stall("write", 0)
        self.driven.sync()
        self.driven.sync()
        self.driven.pump(lambda: all(taker.done for taker in self.asked))
        self.collect()

    def collect(self) -> None:
        """Messages that were asked for and have come."""
        self.taken += [taker for taker in self.asked if taker.body is not None]
        self.asked = [taker for taker in self.asked if not taker.done]

    def publish(self) -> None:
        for _ in range(self.choose.choice([1, 2, 8, 30])):
            size = self.choose.choice([0, 20, 100, 400, 1700])
            body = len(self.published).to_bytes(4, "big") + bytes(size)
            self.published[body] = self.choose.random() < 0.8
            self.driven.publish(body, self.published[body])

    def get(self) -> None:
        for _ in range(self.choose.choice([1, 2, 8, 40])):
            self.asked.append(Taker())
            self.driven.queue.get(self.asked[-1])

    def given(self) -> Iterator[Taker]:
        """Some that were taken, in any order."""
        self.collect()
        self.choose.shuffle(self.taken)
        for _ in range(min(len(self.taken), self.choose.choice([1, 3, 40]))):
            yield self.taken.pop()

    def settle(self) -> None:
        for taker in self.given():
            self.driven.settle(taker)
            assert taker.body is not None
            self.settled.add(taker.body)

    def requeue(self) -> None:
        for taker in self.given():
            self.driven.requeue(taker)
        self.driven.queue.wake()

    def purge(self) -> None:
        self.purged += self.driven.queue.purge()

    def turn(self) -> None:
        """What was asked for is handed to the threads, and what they have done is noticed."""
        callbacks, self.driven.callbacks[:] = self.driven.callbacks[:], []
        for callback in callbacks:
            callback()
        ready = {each.event_fd: done for each, done in self.driven.persister.threads.items()}
        poll = select.poll()
        for descriptor in ready:
            poll.register(descriptor, select.POLLIN)
        for descriptor, _ in poll.poll(0):
            ready[descriptor]()

    def sync(self) -> None:
        recorder.stall("write", 0)
        self.driven.sync()

    def rest(self) -> None:
        store = self.driven.queue.store
        if store is not None and not self.arguments:
            store.rest()

    def hold(self) -> None:
        recorder.stall("write", self.choose.choice([0, 60]))

    def tick(self) -> None:
        self.driven.persister.tick()
        self.turn()


@pytest.mark.parametrize("seed", range(80))
def test_each_message_is_taken_purged_or_there(tmp_path: Path, seed: int) -> None:
    game = Game(tmp_path, random.Random(seed))
    game.play(steps=100)
    driven = game.driven
    assert driven.queue.messages_unacknowledged == len(game.taken)
    ready = driven.queue.messages_ready
    left = driven.drain()
    assert len(left) == ready
    bodies = [taker.body for taker in game.taken] + left
    assert len(set(bodies)) == len(bodies)
    assert game.settled.isdisjoint(bodies)
    assert len(game.published) == len(bodies) + len(game.settled) + game.purged
    driven.sync()
    driven.kill()

    again = Driven(tmp_path, SEGMENT, arguments=game.arguments)
    assert again.recover() == []
    found = again.drain()
    assert len(set(found)) == len(found)
    assert set(found) <= set(bodies)
    assert {body for body in bodies if body and game.published[body]} <= set(found)
    again.kill()

"""Very many who wait for one round: the loop has its turn between their callbacks."""

from __future__ import annotations

import functools
import itertools
import time
from pathlib import Path

from tests.store.driven import Driven, ready

MANY = 400


def burn() -> None:
    until = time.perf_counter() + 0.0001
    while time.perf_counter() < until:
        pass


def ask_for(many: int, driven: Driven, called: list[int]) -> None:
    """So many callbacks behind the next round, each of which notes its number."""

    def call(number: int) -> None:
        burn()
        called.append(number)

    for number in range(many):
        driven.persister.after_round(functools.partial(call, number))


def test_callbacks_of_a_round_are_called_in_slices_and_in_their_order(tmp_path: Path) -> None:
    driven = Driven(tmp_path)
    called: list[int] = []
    turns: list[int] = []

    ask_for(MANY, driven, called)
    threads = {thread.event_fd: work for thread, work in driven.persister.threads.items()}
    while len(called) < MANY:
        if driven.callbacks:
            driven.callbacks.pop(0)()
        else:
            for fd in ready(threads, 20):
                threads[fd]()
        turns.append(len(called))
    assert called == list(range(MANY))
    each = [after - before for before, after in itertools.pairwise(turns)]
    assert max(each) <= MANY // 4
    driven.stop()


def test_those_left_are_called_when_the_broker_stops(tmp_path: Path) -> None:
    driven = Driven(tmp_path)
    called: list[int] = []
    ask_for(MANY, driven, called)
    driven.pump(lambda: bool(called))
    assert len(called) < MANY
    driven.stop()
    assert called == list(range(MANY))

"""Long work of a connection: carried out whole, once, and what waits for it comes behind it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from broker.schema.errors import AMQPError, PreconditionFailed
from broker.vhosts.slices import Slices
from broker.wire.long_work import LongWork


class Standing:
    """A session whose loop is run by hand."""

    def __init__(self) -> None:
        self.later: list[Any] = []
        slices = Slices(lambda _seconds, callback: self.later.append(callback))
        slices.start()
        self.vhost = SimpleNamespace(slices=slices)
        self.long_work: LongWork | None = None
        self.done: list[object] = []

    def after_work(self, callback: Any) -> bool:
        if self.long_work is None:
            return False
        self.long_work.then(callback)
        return True

    def await_work(self) -> None:
        self.done.append("waits")

    def work_over(self) -> None:
        self.done.append("goes on")

    def fail(self, error: AMQPError) -> None:
        self.done.append(error.text)

    def label(self) -> str:
        return "test"

    def run(self) -> None:
        """All turns."""
        while self.later:
            self.later.pop(0)()


@pytest.fixture
def session() -> Standing:
    return Standing()


def slow(session: Standing, *names: object) -> Iterator[None]:
    """Each step takes a slice."""
    for name in names:
        if callable(name):
            name()
        else:
            session.done.append(name)
        until = time.perf_counter() + 0.001
        while time.perf_counter() < until:
            pass
        yield


def test_short_work_is_over_at_once_and_holds_nothing(session: Any) -> None:
    LongWork(session, iter(())).begin()
    assert session.long_work is None
    assert session.done == []


def test_what_waits_is_called_before_the_connection_goes_on(session: Any) -> None:
    work = LongWork(session, slow(session, 1, 2, 3))
    work.begin()
    work.then(lambda: session.done.append("first"))
    work.then(lambda: session.done.append("second"))
    session.run()
    assert session.done == [1, "waits", 2, 3, "first", "second", "goes on"]


def test_what_waits_and_begins_more_makes_the_others_wait_for_that(session: Any) -> None:
    work = LongWork(session, slow(session, 1, 2))
    work.begin()
    work.then(lambda: LongWork(session, slow(session, 3, 4)).begin())
    work.then(lambda: session.done.append("last"))
    session.run()
    assert session.done == [1, "waits", 2, 3, "waits", 4, "last", "goes on", "goes on"]
    assert session.long_work is None


def test_it_can_be_completed_at_once(session: Any) -> None:
    work = LongWork(session, slow(session, 1, 2, 3))
    work.begin()
    work.complete()
    assert session.done == [1, "waits", 2, 3, "goes on"]
    session.run()
    assert session.done == [1, "waits", 2, 3, "goes on"]


def test_completed_from_inside_a_step_it_is_carried_out_once(session: Any) -> None:
    works: list[LongWork] = []
    works.append(LongWork(session, slow(session, 1, lambda: works[0].complete(), 2)))
    works[0].begin()
    session.run()
    assert session.done == [1, "waits", 2, "goes on"]


def test_an_error_of_the_first_slice_is_raised_and_a_later_one_ends_the_channel(
    session: Any,
) -> None:
    def failing(*names: object) -> Iterator[None]:
        yield from slow(session, *names)
        raise PreconditionFailed("no")

    with pytest.raises(PreconditionFailed):
        LongWork(session, failing()).begin()
    LongWork(session, failing(1, 2)).begin()
    session.run()
    assert session.done == [1, "waits", 2, "no", "goes on"]

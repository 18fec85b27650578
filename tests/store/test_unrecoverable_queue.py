"""A queue whose messages a start cannot find again: it begins empty, others are served, and a
person can put everything back."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.fields import properties
from broker.queues import classic
from tests.crash.inside import Inside, publish

PERSISTENT = properties.encode({"delivery_mode": 2})
LARGE = b"large" * 2000


def prepared(directory: Path) -> None:
    """Two queues with one message each and a large one that both refer to, after a kill."""
    inside = Inside(directory, 65536).start()
    vhost = inside.vhost
    vhost.declare_exchange("fan", "fanout", durable=True)
    for name in ("odd", "even"):
        vhost.declare_queue(name, durable=True)
        vhost.bind("fan", name, "queue", "")
        publish(vhost, "", name, PERSISTENT, name.encode())
    publish(vhost, "fan", "", PERSISTENT, LARGE)
    inside.sync()
    inside.kill()


def odd_fails(
    inside: Inside, error: Exception, *, at_once: bool = False
) -> Callable[[Any], list[str]]:
    """Recovers every queue, and raises the error `at_once` for `odd`, or at its end."""
    recover = classic.recover

    def failing(store: Any) -> list[str]:
        is_odd = store.incarnation == inside.vhost.queues["odd"].incarnation
        if is_odd and at_once:
            raise error
        problems: list[str] = recover(store)
        if is_odd:
            raise error
        return problems

    return failing


def bodies(inside: Inside, name: str) -> list[bytes | None]:
    return [taker.body for taker in inside.drain(name)]


@pytest.mark.parametrize(
    ("error", "at_once"),
    [(RuntimeError("planted"), True), (OSError(errno.EIO, "Input/output error"), False)],
)
def test_it_begins_empty_and_costs_no_other_queue_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, at_once: bool
) -> None:
    data = tmp_path / "data"
    prepared(data)
    (journal,) = data.glob("vhosts/*/definitions.journal")
    before = journal.read_bytes()
    inside = Inside(data, 65536)
    with monkeypatch.context() as planted:
        planted.setattr(classic, "recover", odd_fails(inside, error, at_once=at_once))
        inside.start()
    (problem,) = inside.problems
    assert "queue 'odd' in vhost '/' cannot be recovered and begins empty" in problem
    assert str(error) in problem
    (kept,) = (data / "quarantine").glob("queues-*")
    (definitions,) = (data / "quarantine").glob("*.journal")
    assert str(kept) in problem
    assert str(definitions) in problem
    assert definitions.read_bytes() == before

    publish(inside.vhost, "fan", "", PERSISTENT, b"new")
    assert bodies(inside, "odd") == [b"new"]
    taken = inside.drain("even")
    assert [taker.body for taker in taken] == [b"even", LARGE, b"new"]
    for taker in taken:
        inside.vhost.queues["even"].settle_place(taker.place)
    inside.tick()
    inside.stop()
    for _ in range(2):
        inside = Inside(data, 65536).start()
        assert inside.problems == []
        assert bodies(inside, "odd") == [b"new"]
        assert bodies(inside, "even") == []
        inside.tick()
        inside.stop()

    journal.write_bytes(definitions.read_bytes())
    kept.rename(journal.parent / "queues" / kept.name.removeprefix("queues-"))
    inside = Inside(data, 65536).start()
    assert bodies(inside, "odd") == [b"odd", LARGE]
    inside.stop()


def test_what_was_begun_in_its_directory_ends_no_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That there is a gap between its records was to be written when the error came."""
    data = tmp_path / "data"
    prepared(data)
    (segment,) = sorted(data.glob("vhosts/*/queues/*"))[0].glob("msgs.*")
    segment.write_bytes(segment.read_bytes().replace(b"odd", b"ODD"))
    inside = Inside(data, 65536)
    with monkeypatch.context() as planted:
        planted.setattr(classic, "recover", odd_fails(inside, RuntimeError("planted")))
        inside.start()
    inside.tick()
    publish(inside.vhost, "", "odd", PERSISTENT, b"new")
    inside.sync()
    inside.stop()
    inside = Inside(data, 65536).start()
    assert inside.problems == []
    assert bodies(inside, "odd") == [b"new"]
    assert len(list(data.glob("vhosts/*/queues/*"))) == 2
    inside.stop()


def test_an_error_of_the_whole_file_system_ends_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next queue would fail just so, and all is sound once there is room again."""
    data = tmp_path / "data"
    prepared(data)
    inside = Inside(data, 65536)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with monkeypatch.context() as planted:
        planted.setattr(classic, "recover", odd_fails(inside, full))
        with pytest.raises(OSError, match="No space"):
            inside.start()
    inside.kill()
    inside = Inside(data, 65536).start()
    assert inside.problems == []
    assert bodies(inside, "odd") == [b"odd", LARGE]
    inside.stop()


def test_an_odd_thing_in_its_directory_keeps_no_broker_from_starting(tmp_path: Path) -> None:
    data = tmp_path / "data"
    prepared(data)
    directory = sorted(data.glob("vhosts/*/queues/*"))[0]
    (directory / "what.tmp").mkdir()
    inside = Inside(data, 65536).start()
    assert len(inside.problems) == 1
    assert bodies(inside, "odd") == []
    assert bodies(inside, "even") == [b"even", LARGE]
    inside.tick()
    inside.stop()

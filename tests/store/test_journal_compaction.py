"""The journal of definitions while queues, exchanges and bindings come and go for months."""

from __future__ import annotations

import errno
import itertools
import random
import threading
from pathlib import Path

import pytest

from broker.store.directory import journal_compaction
from broker.store.directory.journal import content, entries
from broker.store.files import disk
from broker.vhosts.changes import entry, read_entry
from broker.vhosts.living import living_entries
from broker.vhosts.vhost import VHost
from tests.crash.inside import Inside

LEAST = 2_000
NAMES = ("a", "b", "c", "d", "e")
ROUTING = {"x-match": "any", "n": 3}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal of a few entries is looked at."""
    monkeypatch.setattr(journal_compaction, "LEAST_BYTES", LEAST)


@pytest.fixture
def inside(tmp_path: Path) -> Inside:
    return Inside(tmp_path / "data").start()


def held_writing(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """The thread that writes a shorter file says that it has begun, and waits until it may end."""
    begun, may_end = threading.Event(), threading.Event()
    write_new = disk.write_new

    def held(path: str, pieces: list[bytes]) -> int:
        begun.set()
        assert may_end.wait(30)
        return write_new(path, pieces)

    monkeypatch.setattr(disk, "write_new", held)
    return begun, may_end


def journal_of(inside: Inside) -> Path:
    return Path(inside.vhost.directory) / "definitions.journal"


def defined(vhost: VHost) -> list[tuple[str, object]]:
    """All durable definitions; ids of queues and exchanges are among them."""
    rows = [read_entry(data) for data in vhost._snapshot()]
    return sorted(
        (f"{method} {sorted(change.items())!r}", number) for method, change, number in rows
    )


def churn(vhost: VHost, chance: random.Random, steps: int) -> None:
    """Declares, binds, pauses, unbinds and deletes."""
    for _ in range(steps):
        name, other = chance.choice(NAMES), chance.choice(NAMES)
        match chance.randrange(8):
            case 0 | 1:
                vhost.declare_queue(name, durable=True)
            case 2:
                if f"x{name}" not in vhost.exchanges:
                    kind = chance.choice(["headers", "fanout"])
                    auto = chance.random() < 0.5
                    vhost.declare_exchange(f"x{name}", kind, durable=True, auto_delete=auto)
            case 3 | 4:
                source = chance.choice([f"x{name}", "amq.topic"])
                kind, end = chance.choice([("queue", other), ("exchange", f"x{other}")])
                there = vhost.queues if kind == "queue" else vhost.exchanges
                if source in vhost.exchanges and end in there:
                    arguments = ROUTING if source != "amq.topic" else {}
                    vhost.bind(source, end, kind, chance.choice(["k", ""]), arguments)
            case 5:
                bound = list(vhost.bindings(source="amq.topic"))
                if bound:
                    one = chance.choice(bound)
                    vhost.unbind(one.source, one.destination, one.destination_type, one.routing_key)
            case 6:
                if name in vhost.queues:
                    vhost.delete_queue(name)
                elif other in vhost.queues:
                    vhost.set_paused(vhost.queues[other], chance.random() < 0.5)
            case _:
                vhost.delete_exchange(f"x{other}")


@pytest.mark.parametrize("seed", range(4))
def test_what_is_defined_outlives_kills_and_the_journal_stays_short(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    lengths, living = [], []
    for _ in range(4):
        inside = Inside(tmp_path / "data").start()
        for step in range(40):
            churn(inside.vhost, chance, 12)
            inside.ring()
            inside.sync()
            if step % 3 == 0:
                # The thread has its turn; in between it has it when it likes.
                inside.tick()
            lengths.append(journal_of(inside).stat().st_size)
            living.append(len(content(inside.vhost._snapshot())))
        while not inside.vhost.slices.is_over():
            inside.ring()
        inside.sync()
        wanted = defined(inside.vhost)
        inside.kill()
        again = Inside(tmp_path / "data").start()
        assert defined(again.vhost) == wanted
        assert again.problems == []
        again.kill()
    # Not worth it at less than twice of what lives, it is looked at again at less than four times.
    assert max(lengths) < 5 * max(LEAST, *living)
    assert any(b < a for a, b in itertools.pairwise(lengths))


def test_nothing_that_is_added_while_a_shorter_file_is_written_gets_lost(
    inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = held_writing(monkeypatch)
    vhost = inside.vhost
    churn_one(inside, "before")
    assert begun.wait(30)
    vhost.declare_queue("synced meanwhile", durable=True)
    inside.sync()
    vhost.declare_queue("pending", durable=True)
    before = journal_of(inside).stat().st_ino
    may_end.set()
    inside.tick()
    assert journal_of(inside).stat().st_ino != before
    assert journal_of(inside).stat().st_size < LEAST
    vhost.declare_queue("behind", durable=True)
    inside.sync()
    wanted = defined(vhost)
    assert len(wanted) == 3
    inside.kill()
    again = Inside(tmp_path / "data").start()
    assert defined(again.vhost) == wanted
    again.kill()


def churn_one(inside: Inside, name: str, until: int = LEAST) -> None:
    """Declares and deletes a queue until the journal has that many bytes, and once more."""
    length = 0
    while length < until:
        length = journal_of(inside).stat().st_size
        inside.vhost.declare_queue(name, durable=True)
        inside.vhost.delete_queue(name)
        inside.ring()
        inside.sync()


def test_a_kill_before_the_new_file_is_in_place_leaves_the_old_one(
    inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = threading.Event()
    write_new = disk.write_new

    def noted(path: str, pieces: list[bytes]) -> int:
        length = write_new(path, pieces)
        written.set()
        return length

    monkeypatch.setattr(disk, "write_new", noted)
    inside.vhost.declare_queue("kept", durable=True)
    churn_one(inside, "q")
    assert written.wait(30)
    shorter = journal_of(inside).with_suffix(".journal.tmp")
    assert shorter.exists()
    wanted = defined(inside.vhost)
    inside.kill()
    again = Inside(tmp_path / "data").start()
    assert defined(again.vhost) == wanted
    assert not shorter.exists()
    again.kill()


def test_a_disk_without_space_for_a_shorter_file_leaves_the_journal_as_it_is(
    inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def refused(path: str, _pieces: list[bytes]) -> int:
        tries.append(path)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(disk, "write_new", refused)
        churn_one(inside, "q")
        inside.vhost.declare_queue("kept", durable=True)
        inside.tick()
        assert len(tries) == 1
        inside.vhost.declare_queue("later", durable=True)
        inside.tick()
        # It has to grow before the next try.
        assert len(tries) == 1
    inside.vhost.declare_queue("last", durable=True)
    longest = 0
    while (length := journal_of(inside).stat().st_size) >= longest:
        longest = length
        assert longest < 10 * LEAST
        inside.vhost.declare_queue("q", durable=True)
        inside.vhost.delete_queue("q")
        inside.ring()
        inside.tick()
    wanted = defined(inside.vhost)
    inside.kill()
    again = Inside(tmp_path / "data").start()
    assert defined(again.vhost) == wanted
    assert set(again.vhost.queues) == {"kept", "later", "last"}
    again.kill()


def test_a_journal_of_what_lives_is_not_written_anew(inside: Inside) -> None:
    inode = None
    for number in range(LEAST // 10):
        inside.vhost.declare_queue(f"queue {number}", durable=True)
        if number % 20 == 0:
            inside.tick()
            inode = inode or journal_of(inside).stat().st_ino
    inside.tick()
    assert journal_of(inside).stat().st_ino == inode
    inside.kill()


def test_a_deleted_vhost_gets_no_journal_back(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = held_writing(monkeypatch)
    journal = journal_of(inside)
    churn_one(inside, "q")
    assert begun.wait(30)
    for _ in inside.vhost.delete():
        pass
    inside.sync()
    inside.vhost.drop_journal()
    may_end.set()
    inside.tick()
    assert not journal.exists()


def rows(*changes: tuple[str, dict[str, object]]) -> list[bytes]:
    return [entry(method, change, 0) for method, change in changes]


def queue(name: str) -> dict[str, object]:
    return {
        "queue": name,
        "durable": True,
        "exclusive": False,
        "auto_delete": False,
        "arguments": {},
    }


def test_an_entry_that_cannot_be_read_ends_the_compaction() -> None:
    assert entries(content(living_entries(rows(("queue.declare", queue("q"))))))[0]
    with pytest.raises(LookupError):
        list(living_entries([bytes(8) + (77 << 16).to_bytes(4, "big")]))

"""The short form of `make fuzz-store`, and what damage to the journal of definitions costs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from broker.store.bodies.settings import BodySettings
from broker.store.index.location_index import IndexSettings
from tests.crash.explore import scratch
from tests.crash.fuzz import Fuzzed, fuzz
from tests.crash.inside import Inside, publish
from tests.crash.profiles import Profile
from tests.crash.small import cut_everywhere
from tests.crash.workload import LATE

FILES = {
    *("segment", "acks", "summary", "stream", "places", "timing index", "journal"),
    *("bodies", "contents", "index", "filter", "marker"),
}
"""Every kind of file."""


def test_damaged_files_are_told_of_and_no_altered_byte_is_served() -> None:
    total = Fuzzed()
    for seed in (7, 8, 11):
        total.add(fuzz(seed, 50))
    assert not total.violations, "\n".join(total.violations)
    assert total.by_kind.keys() >= FILES


@pytest.mark.parametrize(("backend", "others"), [("ram", 59), ("leveldb", 499)])
def test_a_file_cut_at_any_byte_costs_no_more_than_what_was_behind(
    backend: str, others: int
) -> None:
    base = scratch()
    try:
        starts, wrong = cut_everywhere(base, backend, True, others)
    finally:
        shutil.rmtree(base)
    assert not wrong, "\n".join(wrong[:5])
    assert starts > 100


def prepared(directory: Path) -> Path:
    """Three queues with a message each; the journal."""
    inside = Inside(directory).start()
    for name in ("first", "second", "third"):
        inside.vhost.declare_queue(name, durable=True)
        publish(inside.vhost, "", name, b"\x10\x00\x02", name.encode())
    inside.sync()
    inside.kill()
    (journal,) = directory.glob("vhosts/*/definitions.journal")
    return journal


def test_one_damaged_definition_costs_no_other_queue(tmp_path: Path) -> None:
    journal = prepared(tmp_path / "data")
    data = bytearray(journal.read_bytes())
    data[data.index(b"second")] ^= 1
    journal.write_bytes(data)
    for times in range(2):
        inside = Inside(tmp_path / "data").start()
        assert set(inside.vhost.queues) == {"first", "third"}
        assert [taker.body for taker in inside.drain("third")] == [b"third"]
        assert ("was damaged" in " ".join(inside.problems)) == (times == 0)
        inside.kill()
    kept = list((tmp_path / "data/quarantine").iterdir())
    assert any(path.read_bytes() == data for path in kept if path.is_file())
    assert any(b"second" in each.read_bytes() for path in kept for each in path.glob("msgs.*"))


@pytest.mark.parametrize("lost", [b"\x06target", b"\x04hops", b"\x06source", b"\x05later"])
def test_no_binding_is_left_to_or_of_what_a_damaged_journal_lost(
    tmp_path: Path, lost: bytes
) -> None:
    inside = Inside(tmp_path / "data").start()
    vhost = inside.vhost
    vhost.declare_queue("other", durable=True)
    vhost.declare_queue("target", durable=True)
    vhost.declare_exchange("hops", "fanout", durable=True)
    vhost.declare_exchange("source", "fanout", durable=True)
    delayed = {"x-delayed-type": "fanout"}
    vhost.declare_exchange("later", "x-delayed-message", durable=True, arguments=delayed)
    for destination, kind in (("other", "queue"), ("target", "queue"), ("hops", "exchange")):
        vhost.bind("source", destination, kind, "")
        vhost.bind("later", destination, kind, "")
    vhost.bind("hops", "other", "queue", "")
    publish(vhost, "later", "", LATE, b"held")
    inside.sync()
    inside.kill()
    (journal,) = (tmp_path / "data").glob("vhosts/*/definitions.journal")
    data = bytearray(journal.read_bytes())
    data[data.index(lost) + 1] ^= 1
    journal.write_bytes(data)
    name = lost[1:].decode()
    for times in range(3):
        inside = Inside(tmp_path / "data").start()
        vhost = inside.vhost
        assert (f"'{name}', lost" in " ".join(inside.problems)) == (times == 0)
        assert name not in {*vhost.queues, *vhost.exchanges}
        bound = {end for each in vhost.bindings() for end in (each.source, each.destination)}
        assert name not in bound
        exchange = "source" if "source" in vhost.exchanges else ""
        publish(vhost, exchange, "other", b"\x10\x00\x02", b"new %d" % times)
        bodies = drained(inside, "other")
        assert bodies >= {b"new %d" % each for each in range(times + 1)}
        assert (b"held" in bodies) == (lost != b"\x05later")
        inside.sync()
        inside.kill()
    kept = [path.name for path in (tmp_path / "data/quarantine").iterdir() if path.is_dir()]
    assert any(each.startswith("delayed-") for each in kept) == (lost == b"\x05later")


def drained(inside: Inside, name: str) -> set[bytes | None]:
    """What is in a queue once nothing is held back any more."""
    inside.pump(lambda: inside.ring() is None and not inside.held)
    return {taker.body for taker in inside.drain(name)}


def test_a_start_that_ends_before_lost_files_are_safe_is_made_again(tmp_path: Path) -> None:
    journal = prepared(tmp_path / "data")
    data = bytearray(journal.read_bytes())
    data[data.index(b"second")] ^= 1
    journal.write_bytes(data)
    inside = Inside(tmp_path / "data")
    inside.definitions._remove_unknown = _ended  # type: ignore[method-assign]
    with pytest.raises(InterruptedError):
        inside.start()
    inside.kill()
    inside = Inside(tmp_path / "data").start()
    assert "was damaged" in " ".join(inside.problems)
    inside.kill()
    kept = (tmp_path / "data/quarantine").glob("queues-*/msgs.*")
    assert any(b"second" in each.read_bytes() for each in kept)


def _ended(*_: object, **__: object) -> None:
    raise InterruptedError


@pytest.mark.parametrize("end", ["kill", "stop"])
@pytest.mark.parametrize("backend", ["ram", "leveldb"])
def test_a_queue_in_quarantine_keeps_its_shared_bodies_until_it_is_put_back(
    tmp_path: Path, end: str, backend: str
) -> None:
    profile = Profile("shared", bodies=BodySettings(index=IndexSettings(backend=backend)))
    inside = Inside(tmp_path / "data", profile=profile).start()
    for name in ("first", "second"):
        inside.vhost.declare_queue(name, durable=True)
        inside.vhost.bind("amq.fanout", name, "queue", "")
    large = b"shared" * 1000
    for _ in range(3):
        publish(inside.vhost, "amq.fanout", "", b"\x10\x00\x02", large)
    inside.sync()
    getattr(inside, end)()
    (journal,) = (tmp_path / "data").glob("vhosts/*/definitions.journal")
    data = journal.read_bytes()
    at = data.index(b"\x06second") + 1
    journal.write_bytes(data[:at] + b"S" + data[at + 1 :])
    for _ in range(3):
        # Whoever else refers to them is done with them.
        inside = Inside(tmp_path / "data", profile=profile).start()
        for taker in inside.drain("first"):
            assert taker.body == large
            inside.vhost.queues["first"].settle_place(taker.place)
        inside.tick()
        inside.collect()
        getattr(inside, end)()
    (kept,) = (tmp_path / "data/quarantine").glob("queues-*")
    journal.write_bytes(data)
    kept.rename(journal.parent / "queues" / kept.name.removeprefix("queues-"))
    inside = Inside(tmp_path / "data", profile=profile).start()
    assert [taker.body for taker in inside.drain("second")] == [large] * 3
    inside.vhost.queues["second"].delete()
    inside.tick()
    assert inside.vhost.bodies.figures()["live_bytes"] == 0
    inside.kill()


def test_a_journal_cut_at_every_byte_costs_what_was_behind_the_cut(tmp_path: Path) -> None:
    journal = prepared(tmp_path / "data")
    data = journal.read_bytes()
    for cut in range(9, len(data), 3):
        journal.write_bytes(data[:cut])
        inside = Inside(tmp_path / "data").start()
        assert set(inside.vhost.queues) <= {"first", "second", "third"}
        if cut > 12 and len(inside.vhost.queues) == 0:
            assert any("behind the last sound definition" in text for text in inside.problems)
        inside.kill()
    kept = (tmp_path / "data/quarantine").glob("*/msgs.*")
    assert len(list(kept)) == 3


def test_a_journal_of_another_version_is_refused(tmp_path: Path) -> None:
    journal = prepared(tmp_path / "data")
    journal.write_bytes(b"LVRJ\x09" + bytes(40))
    with pytest.raises(ValueError, match="no journal of this version; move it away"):
        Inside(tmp_path / "data").start()

"""What comes back after a kill, a power cut and a clean stop, and what of it is marked."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.fields import properties
from broker.store.directory import last_mount
from tests.crash.explore import mounted
from tests.crash.inside import Inside, publish

PERSISTENT = properties.encode({"delivery_mode": 2})
BODIES = [b"first", b"second", b"third"]


def run(directory: Path) -> Inside:
    """A broker with three messages on disk, of which the first was delivered. It was delivered
    after its round, so that the mark of it is in a round of its own."""
    inside = Inside(directory).start()
    inside.vhost.declare_queue("queue", durable=True)
    for body in BODIES:
        publish(inside.vhost, "", "queue", PERSISTENT, body)
    inside.vhost.declare_queue("untouched", durable=True)
    publish(inside.vhost, "", "untouched", PERSISTENT, b"never delivered")
    inside.sync()
    assert inside.take(inside.vhost.queues["queue"]).body == BODIES[0]
    return inside


def untouched(directory: Path) -> bool:
    """A start takes the message that was not delivered: whether it is marked as redelivered."""
    inside = Inside(directory).start()
    (taker,) = inside.drain("untouched")
    inside.kill()
    assert taker.body == b"never delivered"
    return taker.redelivered


def found(directory: Path) -> list[bool]:
    """A start takes all of the other queue: what is marked as redelivered."""
    inside = Inside(directory).start()
    takers = inside.drain("queue")
    inside.kill()
    assert [taker.body for taker in takers] == BODIES
    return [taker.redelivered for taker in takers]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "data"


def lose_acks(directory: Path) -> None:
    """As a power cut does that nothing was synced before."""
    for path in directory.glob("vhosts/*/queues/*/acks.*"):
        path.unlink()


def test_after_a_power_cut_all_comes_as_redelivered_since_marks_may_be_lost(place: Path) -> None:
    with mounted("one mount"):
        run(place).kill()
    lose_acks(place)
    with mounted("another mount"):
        assert untouched(place)
        assert found(place) == [True] * 3


def test_what_a_start_after_a_power_cut_marks_is_marked_after_a_kill_of_it(place: Path) -> None:
    """Also if nothing was delivered in between, and whenever the kill comes."""
    with mounted("one mount"):
        run(place).kill()
    lose_acks(place)
    with mounted("another mount"):
        Inside(place).start().kill()
        inside = Inside(place).start()
        inside.sync()
        inside.kill()
        assert found(place) == [True] * 3


def test_after_a_kill_what_was_not_delivered_comes_without_a_mark(place: Path) -> None:
    run(place).kill()
    assert not untouched(place)
    assert found(place)[0]


def test_after_a_clean_stop_nothing_is_lost_on_another_mount(place: Path) -> None:
    with mounted("one mount"):
        run(place).stop()
    with mounted("another mount"):
        assert found(place) == [True, False, False]


def test_where_the_system_does_not_tell_mounts_apart_all_comes_as_redelivered(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_mount, "this_mount", lambda _directory: "")
    run(place).kill()
    assert found(place) == [True] * 3


def test_a_clean_stop_is_not_believed_after_a_broker_that_says_nothing(place: Path) -> None:
    """One of an earlier version, which counts its start."""
    run(place).stop()
    boots = place / "boots"
    boots.write_text(f"{int(boots.read_text()) + 1}\n")
    assert found(place) == [True] * 3


def test_a_new_directory_has_all_and_one_of_an_earlier_version_is_doubted(tmp_path: Path) -> None:
    assert last_mount.has_all(str(tmp_path))
    (tmp_path / "boots").write_text("3\n")
    assert not last_mount.has_all(str(tmp_path))


@pytest.mark.parametrize("left", [b"", b"1", b"1 stop", b"1 stopped", b"2 stopped\n", b"\xff"])
def test_half_a_note_is_not_believed(tmp_path: Path, left: bytes) -> None:
    (tmp_path / "boots").write_text("1\n")
    (tmp_path / last_mount.FILE).write_bytes(left)
    assert not last_mount.has_all(str(tmp_path))
    last_mount.note_stop(str(tmp_path))
    assert last_mount.has_all(str(tmp_path))


def test_a_mount_is_the_same_each_time_and_another_one_of_another_file_system() -> None:
    here = last_mount.this_mount("/")
    if not here:
        pytest.skip("this kernel is older than Linux 6.8")
    assert last_mount.this_mount("/") == here
    assert last_mount.this_mount("/proc") != here
    assert last_mount.this_mount("/is/not/there") == ""

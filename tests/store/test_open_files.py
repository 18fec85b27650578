"""More queues with something to write than files may be open."""

from __future__ import annotations

import contextlib
import gc
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.features.dedup.id_log import IdLog
from broker.queues.classic import ClassicQueue
from broker.store.commit.persister import Persister
from tests.amqp.raw import Client
from tests.appliance import ROOT
from tests.conftest import Make
from tests.store.driven import INCARNATION, PROPERTIES, Driven, Taker

QUEUES, LIMIT = 300, 64


@pytest.fixture(autouse=True)
def files_are_closed() -> Iterator[None]:
    """Thousands, which other tests of this process would have open, too, until the collector
    happens to look at what is old."""
    yield
    gc.collect()


def queues(driven: Driven, count: int = QUEUES) -> list[ClassicQueue]:
    """Many queues of one persister."""
    return [
        ClassicQueue(
            driven.turn,
            driven.persister,
            str(driven.parent),
            "/",
            f"q{number}",
            INCARNATION + number,
            durable=True,
            arguments=None,
        )
        for number in range(count)
    ]


def test_many_queues_are_gathered_in_short_turns_and_synced_once(tmp_path: Path) -> None:
    """A round of 2,000 files took 30 ms of the turn in which it began."""
    driven = Driven(tmp_path)
    many = queues(driven, 1500)
    for queue in many:
        queue.put(b"", b"q", PROPERTIES, b"body", True)
    told: list[bool] = []
    driven.persister.after_round(lambda: told.append(True))
    driven.pump(lambda: bool(told))
    assert driven.failed is None
    assert driven.persister.rounds > 1
    assert driven.persister.syncs == 1
    written = [file.stat().st_size for file in driven.parent.glob("*/msgs.*")]
    assert len(written) == len(many)
    assert min(written) > len(b"body")
    driven.kill()


def test_very_many_queues_with_few_messages_begin_their_tails_small(tmp_path: Path) -> None:
    """A tail of 4 KiB in each of 100,000 was 400 MiB."""
    driven = Driven(tmp_path)
    many = queues(driven, 1500)
    for _ in range(2):
        for queue in many:
            queue.put(b"", b"q", PROPERTIES, b"body", True)
        driven.sync()
    for queue in many:
        queue.put(b"", b"q", PROPERTIES, b"body", True)
    sizes = [queue.memory for queue in many]
    assert min(sizes[:100]) > 4096  # few had anything to write by then
    assert max(sizes[-100:]) < 4096
    driven.kill()


def few_files(directory: Path, *, no_sync: bool = False) -> Driven:
    """A persister that may hold few files open."""
    driven = Driven(directory, start=False)
    driven._close()
    driven.persister = Persister(
        str(directory), driven.turn.wake, open_files_limit=LIMIT, no_sync=no_sync
    )
    driven.persister.failed = driven._failed
    driven.persister.relieved = lambda: None
    driven.persister.start()
    return driven


def open_now(directory: Path) -> int:
    """Files under a directory that this process has open."""
    count = 0
    for fd in Path("/proc/self/fd").iterdir():
        try:
            count += fd.readlink().is_relative_to(directory)
        except FileNotFoundError:
            continue
    return count


def pump(driven: Driven, told: list[bool]) -> int:
    """Until somebody is told; the most files that were open at any look meanwhile."""
    most = 0

    def done() -> bool:
        nonlocal most
        most = max(most, open_now(driven.parent))
        return bool(told)

    driven.pump(done)
    assert driven.failed is None
    return most


def test_it_tells_after_the_last_part_of_a_round_and_keeps_few_files_open(tmp_path: Path) -> None:
    driven = few_files(tmp_path)
    many = queues(driven)
    for queue in many:
        queue.put(b"", b"q", PROPERTIES, b"body", True)
    told: list[bool] = []
    driven.persister.after_round(lambda: told.append(True))
    most = pump(driven, told)
    written = [file.stat().st_size for file in driven.parent.glob("*/msgs.*")]
    assert len(written) == QUEUES
    assert min(written) > len(b"body")
    assert driven.persister.rounds >= QUEUES // LIMIT
    assert most <= LIMIT + 2  # a queue goes whole into one part
    # Acks of all of them, of which none asks for a sync.
    takers = [Taker() for _ in many]
    for queue, taker in zip(many, takers, strict=True):
        queue.get(taker)
        driven.pump(lambda taker=taker: taker.done)  # type: ignore[misc]
    for queue, taker in zip(many, takers, strict=True):
        queue.settle_place(taker.place)
    told.clear()
    driven.persister.after_round(lambda: told.append(True), False)
    most = pump(driven, told)
    assert most <= LIMIT + 2  # a queue goes whole into one part
    for queue in many:
        assert queue.messages_ready == queue.messages_unacknowledged == 0
    driven.kill()
    again = few_files(tmp_path)
    for queue in queues(again):
        assert queue.recover() == []
        assert queue.messages_ready == 0
    again.kill()


def test_ids_are_written_behind_the_last_part_of_a_round(tmp_path: Path) -> None:
    driven = few_files(tmp_path)
    log = IdLog(driven.persister, str(tmp_path / "ids"), INCARNATION, 100)
    (tmp_path / "ids").mkdir()
    log.append(b"i" * 16, 0, 1)
    many = queues(driven)
    for queue in many:
        queue.put(b"", b"q", PROPERTIES, b"body", True)
    told: list[bool] = []
    driven.persister.after_round(lambda: told.append(True))
    # An id of the next round's message, which comes while this one is carried out.
    driven.pump(lambda: driven.persister.rounds > 1)
    log.append(b"j" * 16, 0, 2)

    def done() -> bool:
        if list(tmp_path.glob("ids/*/ids.*")):
            assert len(list(driven.parent.glob("*/msgs.*"))) == QUEUES
        return bool(told)

    driven.pump(done)
    assert [row[0] for row in IdLog(*again(driven, tmp_path)).recover([])] == [b"i" * 16]
    driven.sync()
    found = IdLog(*again(driven, tmp_path)).recover([])
    assert [row[0] for row in found] == [b"i" * 16, b"j" * 16]
    driven.kill()


def test_a_file_that_is_freed_is_no_open_one_any_more(tmp_path: Path) -> None:
    """Its place in the list was memory of others after that."""
    driven = few_files(tmp_path)
    log = IdLog(driven.persister, str(tmp_path / "ids"), INCARNATION, 100)
    (tmp_path / "ids").mkdir()
    log.append(b"i" * 16, 0, 1)
    driven.sync()
    assert driven.persister.files.count == 1
    del log
    gc.collect()
    assert driven.persister.files.count == 0
    many = queues(driven)
    for queue in many:
        queue.put(b"", b"q", PROPERTIES, b"body", True)
    driven.sync()
    assert open_now(driven.parent) <= LIMIT
    driven.kill()


def again(driven: Driven, directory: Path) -> tuple[Persister, str, int, int]:
    """What a log of the same ids is made of."""
    return driven.persister, str(directory / "ids"), INCARNATION, 100


def publish_and_ack_without_syncs(directory: Path) -> None:
    """More queues than descriptors, in this process. Raises AssertionError."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT + 64, LIMIT + 64))
    driven = few_files(directory, no_sync=True)
    many = queues(driven)
    for times in range(2):
        for queue in many:
            queue.put(b"", b"q", PROPERTIES, b"body %d" % times, True)
        driven.sync()
        driven.tick()
        assert open_now(driven.parent) <= LIMIT
    for queue in many:
        taker = Taker()
        queue.get(taker)
        driven.pump(lambda taker=taker: taker.done)  # type: ignore[misc]
        assert taker.body == b"body 0"
        queue.settle_place(taker.place)
    driven.tick()
    assert driven.failed is None
    assert open_now(driven.parent) <= LIMIT
    assert driven.persister.syncs == 0
    driven.kill()
    again = few_files(directory, no_sync=True)
    for queue in queues(again):
        assert queue.recover() == []
        assert queue.messages_ready == 1
    again.kill()


def test_without_syncs_more_queues_than_descriptors_do_no_harm(tmp_path: Path) -> None:
    # In a process of its own, which alone has few descriptors.
    code = f"from {__name__} import *; publish_and_ack_without_syncs(Path({str(tmp_path)!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_definitions_of_a_vhost_take_no_open_file(make_broker: Make) -> None:
    """Those of many vhosts would come on top of what the store may have, and of the sockets."""
    broker = make_broker()
    assert broker.process is not None
    with Client.open((broker.host, broker.amqp_port)) as client:
        for number in range(5):
            client.call(1, "queue.declare", queue=f"q{number}", durable=True)
    descriptors = Path(f"/proc/{broker.process.pid}/fd")
    names = []
    for each in descriptors.iterdir():
        with contextlib.suppress(OSError):
            names.append(each.readlink().name)
    assert "definitions.journal" not in names
    broker.close()

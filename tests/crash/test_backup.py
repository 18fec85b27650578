"""A backup holds what a kill at one instant after the command began would have left."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from broker.store.directory import snapshot
from broker.store.directory.data_directory import SchemaError, check_schema
from broker.store.files import disk, gate
from management import backup
from management.backup import Pace, copy_file
from management.broker_client import BrokerClient
from tests.amqp.raw import Client
from tests.appliance import ROOT, Appliance
from tests.bench.leveret import Leveret
from tests.conftest import Make
from tests.crash.backup import BackedUp
from tests.disks import SmallDisk


def back_up(source: Path, target: Path, *more: str) -> tuple[int, str]:
    command = [sys.executable, "manage.py", "backup", str(target), "--data-dir", str(source), *more]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def filled(make_broker: Make) -> Appliance:
    """A broker with a message."""
    broker = make_broker()
    with Client.open((broker.host, broker.amqp_port)) as client:
        client.call(1, "queue.declare", queue="q", durable=True)
        client.call(1, "confirm.select")
        client.publish(1, "", "q", b"kept", delivery_mode=2)
        client.expect("basic.ack", 1)
    return broker


def holds(broker: Appliance) -> bytes:
    with Client.open((broker.host, broker.amqp_port)) as client:
        got = client.get(1, "q")
        assert got is not None
        return got.body


def test_a_backup_under_load_holds_every_confirm_given_before_it_began(tmp_path: Path) -> None:
    victim = Leveret(
        tmp_path / "broker", extra=["--segment-size", "65536", "--tail-memory", "1048576"]
    )
    run = BackedUp(victim, tmp_path / "run", run=3, seed=11, rate="0")
    run.log = tmp_path / "broker/output"
    run.prepare()
    try:
        for _ in range(1):
            verdict = run.cycle()
            assert verdict.clean, str(verdict)
        assert verdict.confirmed > 100
    finally:
        victim.stop()


def test_a_broker_starts_on_a_backup_of_a_running_one(
    filled: Appliance, make_broker: Make, tmp_path: Path
) -> None:
    status, text = back_up(filled.data_dir, tmp_path / "copy")
    assert (status, "is whole" in text) == (0, True), text
    assert "nothing was written for" in text
    deadline = time.monotonic() + 60
    while (filled.data_dir / "snapshot").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert (tmp_path / "copy/users.json").stat().st_mode & 0o077 == 0
    copied = make_broker(data_dir=tmp_path / "copy")
    assert holds(copied) == b"kept"
    assert holds(filled) == b"kept"


@pytest.mark.parametrize("with_key", [False, True])
def test_the_key_of_stored_passwords_is_copied_only_if_that_is_asked_for(
    filled: Appliance, tmp_path: Path, with_key: bool
) -> None:
    more = ["--with-secrets-key"] if with_key else []
    status, text = back_up(filled.data_dir, tmp_path / "copy", *more)
    assert status == 0, text
    copy = tmp_path / "copy/secrets_key"
    assert copy.exists() is with_key
    if with_key:
        assert copy.read_bytes() == (filled.data_dir / "secrets_key").read_bytes()
        assert copy.stat().st_mode & 0o077 == 0


def test_without_a_broker_the_directory_is_copied_as_it_is(
    filled: Appliance, make_broker: Make, tmp_path: Path
) -> None:
    filled.close()
    filled.process = None
    status, text = back_up(filled.data_dir, tmp_path / "copy")
    assert (status, "no broker runs on it" in text) == (0, True), text
    assert holds(make_broker(data_dir=tmp_path / "copy")) == b"kept"


def test_it_refuses_what_would_be_no_backup(filled: Appliance, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    for target, words in (
        (tmp_path / "full", "is not empty"),
        (filled.data_dir / "copy", "lies in the data directory itself"),
        (tmp_path / "full/file/x", "cannot make"),
    ):
        status, text = back_up(filled.data_dir, target)
        assert (status, words in text) == (os.EX_CANTCREAT, True), text
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["file"]
    status, text = back_up(tmp_path / "none", tmp_path / "copy")
    assert (status, "there is no data directory" in text) == (os.EX_CANTCREAT, True), text
    assert not (tmp_path / "copy").exists()


def test_a_target_without_room_is_left_as_it_was(filled: Appliance, small_disk: SmallDisk) -> None:
    target = small_disk.path / "copy"
    target.mkdir()
    small_disk.fill(leave=8192)
    status, text = back_up(filled.data_dir, target)
    assert status == os.EX_CANTCREAT, text
    assert list(target.iterdir()) == []


@pytest.mark.parametrize("rate", ["fast", "-1"])
def test_it_refuses_a_rate_that_is_none(filled: Appliance, tmp_path: Path, rate: str) -> None:
    status, _ = back_up(filled.data_dir, tmp_path / "copy", f"--rate={rate}")
    assert status == 78
    assert not (tmp_path / "copy").exists()


async def test_a_connection_that_came_back_is_no_longer_the_one_that_held_the_files(
    filled: Appliance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients: list[BrokerClient] = []
    loop = asyncio.get_running_loop()

    class Watched(BrokerClient):
        def __init__(self, path: Path) -> None:
            super().__init__(path)
            clients.append(self)

    def cut(*_: object) -> None:
        """While files are copied, the connection ends and another one takes its place."""
        (client,) = clients
        assert client._frames is not None
        before = client.connections
        loop.call_soon_threadsafe(client._frames.close)
        deadline = time.monotonic() + 60
        while client.connections == before or not client.connected:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    monkeypatch.setattr(backup, "BrokerClient", Watched)
    monkeypatch.setattr(backup, "_copy", cut)
    with pytest.raises(backup.BackupError, match="the connection to the broker ended"):
        await backup.back_up(filled.data_dir, tmp_path / "copy", Pace())
    assert not (tmp_path / "copy").exists()


def test_no_broker_starts_on_half_a_backup(tmp_path: Path) -> None:
    (tmp_path / snapshot.INCOMPLETE).touch()
    with pytest.raises(SchemaError, match="a backup that was not finished"):
        check_schema(str(tmp_path))


def test_a_snapshot_is_the_state_of_one_moment(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "run").mkdir()
    for name in ("a/b/grows", "a/goes", "replaced", "run/left", "lock"):
        (tmp_path / name).write_text("old")
    taken = snapshot.take(str(tmp_path))
    (tmp_path / "a/b/grows").open("a").write(" and new")
    (tmp_path / "a/goes").unlink()
    (tmp_path / "new").write_text("new")
    (tmp_path / "replaced").rename(tmp_path / "gone")
    (tmp_path / "replaced").write_text("new")
    rows = (tmp_path / "snapshot/files").read_text().splitlines()
    held = {}
    for path, length, _ in map(json.loads, rows):
        if not path.endswith("/"):
            held[path] = (tmp_path / "snapshot/tree" / path).read_text()[:length]
    assert held == {"a/b/grows": "old", "a/goes": "old", "replaced": "old"}
    assert (taken.files, taken.bytes) == (3, 9)
    snapshot.drop(str(tmp_path))
    assert not (tmp_path / "snapshot").exists()


def test_nothing_passes_the_gate_while_it_is_shut(tmp_path: Path) -> None:
    done = threading.Event()
    path = tmp_path / "file"
    with gate.shut():
        thread = threading.Thread(target=lambda: (disk.append(str(path), b"x"), done.set()))
        thread.start()
        assert not done.wait(0.1)
        assert not path.exists()
    assert done.wait(60)
    thread.join()
    assert path.read_bytes() == b"x"


def test_holes_stay_holes_in_the_copy(tmp_path: Path) -> None:
    source = tmp_path / "source"
    with source.open("wb") as file:
        file.write(b"a" * 4096)
        file.seek(1 << 20)
        file.write(b"b" * 4096)
        file.truncate(2 << 20)
    copy_file(source, tmp_path / "copy", (1 << 20) + 10, 0o600, Pace())
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()[: (1 << 20) + 10]
    assert (tmp_path / "copy").stat().st_blocks * 512 < 1 << 19

"""`manage.py backup DIR`: copies the data directory, also while the broker runs.

The copy is the state of one instant after the command began, as if the broker had been killed then:
every confirm given before is in it. A running broker holds that state as hard links
(`broker.store.directory.snapshot`) as long as this process stays connected; without a broker the
directory itself is copied, under its lock. Starting on the copy restores it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from broker.process.lifetime import program
from broker.settings import config as settings
from broker.settings.quantities import read_size
from broker.store.directory import snapshot
from broker.store.files import disk
from management.broker_client import BrokerClient, BrokerError

Row = tuple[str, int, int]
"""Path, length and mode."""

PART = 1 << 20
REPORT_EVERY_S = 2.0


class BackupError(Exception):
    """Why there is no backup; the text is one line for the person who asked for it."""


def main(argv: Sequence[str]) -> int:
    """Makes the backup; returns the exit status."""
    parser = argparse.ArgumentParser(prog=f"{program()} backup", description=__doc__)
    parser.add_argument("directory", type=Path, help="where the copy goes: a new or empty one")
    parser.add_argument("--rate", default="0", help="copy at most so much a second; 0: no limit")
    parser.add_argument(
        "--with-secrets-key",
        action="store_true",
        help="copy the key of stored passwords, too: then the copy is as secret as they are",
    )
    options, others = parser.parse_known_args(argv)
    try:
        config = settings.load(others, os.environ)
        rate = read_size(options.rate)
    except (settings.ConfigError, ValueError) as error:
        print(f"leveret backup: {error}", file=sys.stderr)
        return settings.EXIT_CONFIG
    try:
        key = config.secrets_key_file if options.with_secrets_key else None
        asyncio.run(back_up(config.data_dir, options.directory, Pace(rate), key))
    except BackupError as error:
        print(f"leveret backup: {error}", file=sys.stderr)
        return os.EX_CANTCREAT
    except KeyboardInterrupt:
        print("leveret backup: stopped; there is no backup", file=sys.stderr)
        return 130
    return 0


async def back_up(source: Path, target: Path, pace: Pace, key: Path | None = None) -> None:
    """Copies a data directory, and the file of the key of its secrets if it is given. Raises
    BackupError; then nothing of the copy is left."""
    made = _prepare(source, target)
    try:
        if key is not None:
            copy_file(key, target / snapshot.SECRETS_KEY, PART, 0o600, pace)
        if (lock := _lock(source)) is not None:
            with lock:
                say("no broker runs on it: copying the directory as it is")
                rows = list(snapshot.contents(str(source), snapshot.LEFT_OUT))
                await asyncio.to_thread(_copy, source, rows, target, pace)
        else:
            await _copy_from_broker(source, target, pace)
    except OSError as error:
        _clear(target, made)
        what = error.filename or target
        raise BackupError(f"{what}: {error.strerror}; there is no backup") from None
    except BaseException:
        _clear(target, made)
        raise
    say(f"the backup in {target} is whole; start on it with --data-dir {target}")


async def _copy_from_broker(source: Path, target: Path, pace: Pace) -> None:
    client = BrokerClient(source / "control.sock")
    try:
        taken = await client.call("backup.begin", timeout_s=600.0)
        connections = client.connections
        say(
            f"the state of this moment is held: {taken['files']:,} files, "
            f"nothing was written for {taken['still_s'] * 1000:.0f} ms"
        )
        held = Path(taken["directory"])
        lines = (held / snapshot.LIST).read_text().splitlines()
        rows: list[Row] = [tuple(json.loads(line)) for line in lines]
        await asyncio.to_thread(_copy, held / snapshot.TREE, rows, target, pace)
        # If the snapshot was released meanwhile, holes may have been made in what was copied last.
        if not client.connected or client.connections != connections:
            raise BackupError(
                "the connection to the broker ended while its files were copied, and what it held "
                "with it; see whether the broker did, and why, in its log; there is no backup"
            )
        if not (held / snapshot.LIST).exists():
            raise BackupError(
                f"{held} was taken away while it was copied, by another broker on this data "
                "directory or by hand; there is no backup"
            )
        # Quicker here than in a process with other work; the broker takes what is left.
        await asyncio.to_thread(shutil.rmtree, held / snapshot.TREE, ignore_errors=True)
    except BrokerError as error:
        raise BackupError(f"the broker: {error.reason}") from None
    except FileNotFoundError as error:
        why = "the broker still runs" if client.connected else "the broker ended meanwhile"
        raise BackupError(
            f"{error.filename} is gone while the files were copied, and {why}; there is no backup"
        ) from None
    finally:
        await client.close()


def _prepare(source: Path, target: Path) -> bool:
    """Makes the target, marked as incomplete. Returns whether its directory is new."""
    if not source.is_dir():
        raise BackupError(f"there is no data directory {source}")
    try:
        if target.resolve().is_relative_to(source.resolve()):
            raise BackupError(f"{target} lies in the data directory itself")
        made = not target.exists()
        target.mkdir(parents=True, exist_ok=True, mode=0o700)
        if any(target.iterdir()):
            raise BackupError(f"{target} exists and is not empty; name another directory")
        disk.append(str(target / snapshot.INCOMPLETE), b"")
    except OSError as error:
        raise BackupError(f"cannot make {target}: {error.strerror}") from None
    return made


def _clear(target: Path, made: bool) -> None:
    with contextlib.suppress(OSError):
        disk.remove_tree(str(target))
        if not made:
            target.mkdir(mode=0o700)


def _lock(source: Path) -> contextlib.closing[_Lock] | None:
    """The lock of a data directory that no broker uses, or None."""
    try:
        return contextlib.closing(_Lock(disk.lock(str(source / "lock"))))
    except BlockingIOError:
        return None


@dataclass
class _Lock:
    descriptor: int

    def close(self) -> None:
        os.close(self.descriptor)


@dataclass
class Pace:
    """Keeps copying below `rate` bytes a second (0: any) and tells how far it is."""

    rate: int = 0
    say: Callable[[str], None] = lambda text: say(text)
    total: int = 0
    done: int = 0
    began: float = field(default_factory=time.monotonic)
    said: float = 0.0

    def begin(self, total: int) -> None:
        self.total, self.began = total, time.monotonic()
        self.said = self.began

    def copied(self, count: int) -> None:
        """`size` bytes more were copied; waits if that was too fast."""
        self.done += count
        now = time.monotonic()
        if self.rate and (early := self.began + self.done / self.rate - now) > 0:
            time.sleep(early)
        if now - self.said >= REPORT_EVERY_S:
            self.said = now
            speed = self.done / (now - self.began) / (1 << 20)
            share = self.done / max(1, self.total)
            self.say(f"{share:4.0%} of {_size(self.total)}, {speed:.0f} MiB/s")


def _copy(source: Path, rows: Iterable[Row], target: Path, pace: Pace) -> None:
    """Copies the files as far as they are listed, syncs, and takes the mark away."""
    rows = list(rows)
    total = sum(length for _, length, _ in rows)
    wanted = sum(min(length, _occupied(source / path)) for path, length, _ in rows)
    free = disk.usage(str(target))[0]
    if wanted > free:
        raise BackupError(f"{target} has {_size(free)} free, the backup needs {_size(wanted)}")
    pace.begin(total)
    # Opened before the first write, so that its sync tells of a write that failed in between.
    directory = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for path, length, mode in rows:
            if path.endswith("/"):
                (target / path).mkdir(mode=0o700)
            else:
                copy_file(source / path, target / path, length, mode, pace)
        disk.sync_file_system(directory)
    finally:
        os.close(directory)
    (target / snapshot.INCOMPLETE).unlink()
    disk.sync_directory(str(target))
    disk.sync_directory(str(target.parent))


def copy_file(source: Path, target: Path, length: int, mode: int, pace: Pace) -> None:
    """Copies the first `length` bytes of a file, or fewer if it is shorter now; holes stay holes.
    Raises OSError."""
    reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        length = min(length, os.fstat(reading).st_size)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        writing = os.open(target, flags, mode)
        try:
            at = 0
            while at < length:
                try:
                    start = os.lseek(reading, at, os.SEEK_DATA)
                except OSError as error:
                    if error.errno != errno.ENXIO:
                        raise
                    start = length
                pace.copied(min(start, length) - at)
                at = min(start, length)
                end = min(os.lseek(reading, at, os.SEEK_HOLE), length) if at < length else at
                while at < end:
                    data = os.pread(reading, min(PART, end - at), at)
                    if not data:
                        raise OSError(errno.EIO, "shorter than it was", str(source))
                    view = memoryview(data)
                    written = 0
                    while written < len(data):
                        written += os.pwrite(writing, view[written:], at + written)
                    at += len(data)
                    pace.copied(len(data))
            os.ftruncate(writing, length)
        except OSError as error:
            error.filename = error.filename or str(target)
            raise
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def _occupied(path: Path) -> int:
    return disk.allocated(str(path)) if path.is_file() else 0


def _size(count: int) -> str:
    return f"{count / (1 << 20):,.1f} MiB"


def say(text: str) -> None:
    print(f"leveret backup: {text}", flush=True)

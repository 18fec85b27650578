"""An error of writing back is told to us whoever else asked first.

The disk is an ext4 on a loop device whose image lies on a tmpfs that is too small for it: the file
system takes what is written, and fails to write it back. Skips where that cannot be set up.
"""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.store.commit.persister import Persister
from tests.disks import SmallDisk

LIBC = ctypes.CDLL(None, use_errno=True)


def run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip(f"there is no {command[0]} here")
    if done.returncode:
        pytest.skip(f"{command[0]} does not work here: {done.stderr.strip()}")
    return done.stdout.strip()


@pytest.fixture
def failing_disk(tmp_path: Path) -> Iterator[Path]:
    """Takes 16 MiB and has room for less than 6."""
    small = SmallDisk(tmp_path / "small", 6 << 20)
    image, path = small.path / "image", tmp_path / "disk"
    path.mkdir()
    device = ""
    try:
        with image.open("wb") as file:
            file.truncate(64 << 20)
        run("mkfs.ext4", "-q", "-F", "-O", "^has_journal", str(image))
        device = run("losetup", "-f", "--show", str(image))
        run("mount", device, str(path))
        try:
            yield path
        finally:
            subprocess.run(["umount", "-l", str(path)], check=True)
    finally:
        if device:
            subprocess.run(["losetup", "-d", device], check=True)
        small.unmount()


def synced_by_another_program(path: Path) -> int:
    """The error of a syncfs through a descriptor that is opened for it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return ctypes.get_errno() if LIBC.syncfs(descriptor) else 0
    finally:
        os.close(descriptor)


def test_an_error_that_another_program_was_told_first_is_told_to_us(failing_disk: Path) -> None:
    persister = Persister(str(failing_disk), lambda: None)
    persister.open_root()
    persister.sync_file_system()
    with (failing_disk / "file").open("wb") as file:
        file.write(os.urandom(16 << 20))
    assert synced_by_another_program(failing_disk) in (errno.EIO, errno.ENOSPC)
    # Nobody who comes later hears of it.
    assert synced_by_another_program(failing_disk) == 0
    with pytest.raises(OSError, match=str(failing_disk)) as told:
        persister.sync_file_system()
    assert told.value.errno in (errno.EIO, errno.ENOSPC)
    persister.sync_file_system()  # once
    for thread in persister.io_threads:
        thread.close()


def test_it_needs_its_data_directory(tmp_path: Path) -> None:
    persister = Persister(str(tmp_path / "gone"), lambda: None)
    with pytest.raises(FileNotFoundError):
        persister.open_root()
    with pytest.raises(FileNotFoundError):
        persister.sync_file_system()
    for thread in persister.io_threads:
        thread.close()

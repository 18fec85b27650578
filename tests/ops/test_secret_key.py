"""The key that signs cookies is there whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from management import secret_key


def test_it_makes_a_key_and_keeps_it(tmp_path: Path) -> None:
    key = secret_key.load_or_create(tmp_path)
    assert len(key) >= 32
    assert secret_key.load_or_create(tmp_path) == key
    assert [path.name for path in tmp_path.iterdir()] == ["secret_key"]
    assert (tmp_path / "secret_key").stat().st_mode & 0o777 == 0o600


def test_a_full_disk_leaves_no_half_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            secret_key.load_or_create(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert len(secret_key.load_or_create(tmp_path)) >= 32


def test_what_a_power_cut_left_is_in_no_way(tmp_path: Path) -> None:
    (tmp_path / "secret_key.new").touch()
    assert len(secret_key.load_or_create(tmp_path)) >= 32
    assert [path.name for path in tmp_path.iterdir()] == ["secret_key"]


def test_it_refuses_a_key_that_is_too_short(tmp_path: Path) -> None:
    (tmp_path / "secret_key").write_text("short")
    with pytest.raises(ValueError, match="too short"):
        secret_key.load_or_create(tmp_path)

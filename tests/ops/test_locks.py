"""The lock files: every file of every package by its hash, and what is known against a version."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.ops.test_set_up import tool

lock = tool("lock")


@pytest.fixture
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Copies of the lock files that a test may change."""
    paths = {}
    for name in ("BUILD", "RUN", "REPORTS", "TEST"):
        paths[name] = tmp_path / getattr(lock, name).name
        paths[name].write_bytes(getattr(lock, name).read_bytes())
        monkeypatch.setattr(lock, name, paths[name])
    return paths


def test_the_lock_files_hold_what_the_project_needs_and_no_more() -> None:
    assert lock.problems() == []


def test_every_locked_package_has_hashes_of_its_files() -> None:
    for path in lock.wanted():
        found = lock.entries(path.read_text())
        assert len(found) > 2
        assert [name for name, (_, hashes) in found.items() if not hashes] == []


def test_a_package_without_a_hash_is_a_problem(locks: dict[str, Path]) -> None:
    text = locks["RUN"].read_text()
    head, _, rest = text.partition("django==")
    version, _, after = rest.partition(" \\\n")
    after = after[after.index("\ndjango-ninja==") :]
    locks["RUN"].write_text(f"{head}django=={version}{after}")
    assert lock.problems() == ["django has no hash in requirements.lock"]


def test_a_package_too_much_or_too_little_is_a_problem(locks: dict[str, Path]) -> None:
    text = locks["TEST"].read_text()
    at = text.index("\nyarl==") + 1
    locks["TEST"].write_text(text[:at] + f"yard==1.0 \\\n    --hash=sha256:{'0' * 64}\n")
    assert sorted(lock.problems()) == [
        "nothing needs yard of requirements-test.lock",
        "yarl is not in requirements-test.lock",
    ]


def advisory(directory: Path, name: str, **fields: object) -> None:
    affected = {"package": {"ecosystem": "PyPI", "name": "Django"}, **fields}
    entry = {"id": name, "modified": "2026-01-02", "details": "words", "affected": [affected]}
    (directory / f"{name}.json").write_text(json.dumps(entry))


def between(introduced: str, fixed: str) -> list[dict[str, object]]:
    return [{"type": "ECOSYSTEM", "events": [{"introduced": introduced}, {"fixed": fixed}]}]


def test_known_flaws_of_locked_versions_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    advisories = tool("advisories")
    version = lock.locked(lock.RUN)["django"]
    monkeypatch.setattr(sys, "argv", ["advisories.py", str(tmp_path)])
    assert advisories.main() == advisories.EX_USAGE, "an empty directory is no database"
    advisory(tmp_path, "A-1", ranges=between("0", "5.0"))
    assert advisories.main() == 0
    advisory(tmp_path, "A-2", ranges=between("5.0", "99"))
    advisory(tmp_path, "A-3", versions=["1.0", version])
    (tmp_path / "A-4.yaml").write_text(
        "id: A-4\nmodified: '2026-03-01'\nwithdrawn: '2026-03-02'\naffected:\n"
        f"- package: {{ecosystem: PyPI, name: django}}\n  versions: ['{version}']\n"
    )
    capsys.readouterr()
    assert advisories.main() == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[1].strip() for line in lines[:2]] == ["A-2", "A-3"]
    assert lines[2:] == [
        f"{sum(len(lock.locked(path)) for path in lock.wanted())} packages, 4 advisories, "
        "the newest of 2026-03-01"
    ]

"""Settings files: written whole or not at all, read with errors that say where."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from broker.settings.files import SettingsError, SettingsFiles
from tests.control.disks import MemoryDisk


class Shape(msgspec.Struct):
    names: list[str]


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def files(disk: MemoryDisk) -> SettingsFiles:
    return SettingsFiles("/data", disk)


def test_it_reads_back_what_it_wrote(files: SettingsFiles) -> None:
    files.put("names.json", Shape(["a", "é\u2028"]))
    assert files.dirty
    files.flush()
    assert not files.dirty
    assert files.load("names.json", Shape) == Shape(["a", "é\u2028"])


def test_what_is_being_written_is_not_on_disk_yet(
    files: SettingsFiles, disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks meanwhile waits for it, though nothing new was put."""
    during: list[bool] = []
    write = disk.write_atomic

    def writing(path: str, data: bytes, mode: int) -> None:
        during.append(files.dirty)
        write(path, data, mode)

    monkeypatch.setattr(disk, "write_atomic", writing)
    files.put("names.json", Shape(["a"]))
    files.flush()
    assert during == [True]
    assert not files.dirty


def test_it_says_none_for_a_missing_file(files: SettingsFiles) -> None:
    assert files.load("names.json", Shape) is None


def test_it_writes_only_the_newest_content_of_each_file(
    files: SettingsFiles, disk: MemoryDisk
) -> None:
    for number in range(5):
        files.put("names.json", Shape([str(number)]))
    files.flush()
    files.flush()
    assert disk.writes == ["/data/names.json"]
    assert files.load("names.json", Shape) == Shape(["4"])


def test_it_keeps_the_old_file_when_the_write_is_cut_off(
    files: SettingsFiles, disk: MemoryDisk
) -> None:
    files.put("names.json", Shape(["old"]))
    files.flush()
    disk.crash_before_rename = True
    files.put("names.json", Shape(["new"]))
    with pytest.raises(OSError, match="Input/output"):
        files.flush()
    assert SettingsFiles("/data", disk).load("names.json", Shape) == Shape(["old"])
    assert files.dirty, "what could not be written is still to be written"
    disk.crash_before_rename = False
    files.flush()
    assert files.load("names.json", Shape) == Shape(["new"])


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b'{\n  "names": [\n    "a",,\n  ]\n}', "line 3, column 9"),
        (b'{"names": ["a"]', "line 1, column 16"),
        (b"", "line 1, column 1"),
        (b'{"names":\n ["\xff"]}', "line 2, column 4"),
        (b'{"names": [1]}', r"\$.names\[0\]"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_it_names_file_line_and_column_of_a_broken_file(
    files: SettingsFiles, disk: MemoryDisk, content: bytes, place: str
) -> None:
    disk.files["/data/names.json"] = content
    with pytest.raises(SettingsError, match=f"^/data/names.json: .*{place}") as caught:
        files.load("names.json", Shape)
    assert "\n" not in str(caught.value)


def test_it_writes_through_the_real_disk(tmp_path: Path) -> None:
    from broker.store.files import disk

    files = SettingsFiles(tmp_path, disk)
    files.put("names.json", Shape(["a"]))
    files.flush()
    assert files.load("names.json", Shape) == Shape(["a"])
    assert (tmp_path / "names.json").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["names.json"]

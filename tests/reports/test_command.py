"""What `manage.py report` says of wrong options: before it asks for a run, which takes long."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from management import report


def told(capsys: pytest.CaptureFixture[str], data_dir: Path, *options: str) -> tuple[int, str]:
    """The exit status and the line on standard error."""
    status = report.main([*options, "--data-dir", str(data_dir)])
    captured = capsys.readouterr()
    assert captured.out == ""
    return status, captured.err


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--top", "x"], "top is 'x', not a number from 1 to 1000"),
        (["--top", "-1"], "top is '-1', not a number"),
        (["--top", "3", "--measure", "nope"], "measure is 'nope', not one of messages_in"),
        (["--measure", "bytes_in"], "give --top as well"),
        (["--sort", "nope"], "sort is 'nope', not one of"),
        (["--by", "nope"], "by is one of"),
        (["--from", "soon"], "not a date such as"),
    ],
)
def test_a_wrong_option_is_refused_before_a_run_is_asked_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, options: list[str], text: str
) -> None:
    status, line = told(capsys, tmp_path, "traffic", *options)
    assert status == os.EX_USAGE
    assert text in line


@pytest.mark.parametrize("name", ["missing/report.csv", ""])
def test_a_file_that_cannot_be_written_is_refused_before_a_run_is_asked_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    output = tmp_path / name
    status, line = told(capsys, tmp_path, "traffic", "--output", str(output))
    assert status == os.EX_IOERR
    assert f"cannot write {output}: " in line
    assert "Errno" not in line and ".part" not in line


def test_without_a_reports_process_it_names_the_data_directory(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    output = tmp_path / "report.csv"
    status, line = told(capsys, tmp_path, "traffic", "--output", str(output), "--top", "3")
    assert status == os.EX_UNAVAILABLE
    assert f"does not answer: No such file or directory (data directory {tmp_path})" in line
    assert not list(tmp_path.glob("report.csv*"))

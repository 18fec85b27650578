"""An export of definitions that is long: written while it is read, whole or not at all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from management.ctl.definitions import export_definitions
from management.ctl.table import UNAVAILABLE, CommandError

HEAD = {"rabbit_version": "3.10.8"}
ROWS = [{"name": "q" * 20_000}, {"name": "b"}]


class Exporting:
    """A call of the command on a broker that answers in two slices, or breaks off."""

    vhost = "/"

    def __init__(self, file: Path, breaks: bool = False) -> None:
        self._breaks = breaks
        self._beside = file.parent
        self.written_before_the_end = 0
        self.options = {
            "file": str(file),
            "for": None,
            "secrets": False,
            "dry_run": False,
            "vhost_given": False,
        }

    async def slices(self, verb: str, **_: Any) -> AsyncGenerator[dict[str, Any]]:
        assert verb == "definitions.export"
        sections = ["users", "queues"]
        yield {"head": HEAD, "sections": sections, "items": [("queues", ROWS[0])], "more": True}
        self.written_before_the_end = sum(one.stat().st_size for one in self._beside.iterdir())
        if self._breaks:
            raise CommandError("the broker is away", UNAVAILABLE)
        yield {"items": [("queues", ROWS[1])], "more": False}


def run(call: Any) -> None:
    asyncio.run(export_definitions(call))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "definitions.json"


def test_an_export_is_written_while_it_is_read(file: Path) -> None:
    call = Exporting(file)
    run(call)
    assert call.written_before_the_end > 20_000
    assert json.loads(file.read_text()) == {**HEAD, "users": [], "queues": ROWS}
    assert len(file.read_text().splitlines()) > len(ROWS)


def test_an_export_that_breaks_off_leaves_the_file_before_as_it_was(file: Path) -> None:
    file.write_text("before")
    with pytest.raises(CommandError):
        run(Exporting(file, breaks=True))
    assert file.read_text() == "before"
    assert list(file.parent.iterdir()) == [file]


def test_an_export_to_standard_output_is_the_same(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = Exporting(file)
    call.options["file"] = "-"
    run(call)
    assert json.loads(capsys.readouterr().out) == {**HEAD, "users": [], "queues": ROWS}

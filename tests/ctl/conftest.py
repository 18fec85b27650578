"""A command line against a real broker that has no web process beside it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from management.ctl.main import main
from tests.appliance import Appliance


@dataclass
class Ran:
    """What a command printed, and its exit status."""

    status: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The output as JSON."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[list[str]]:
        """The words of each line of a table."""
        return [line.split() for line in self.out.splitlines()]


Ctl = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ctl:
    """Runs `ctl` with these words; `stdin` is its standard input."""

    def run(*words: str, stdin: str = "") -> Ran:
        capsys.readouterr()
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        status = main(words)
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    return run


@pytest.fixture
def ctl(run: Ctl, shared_broker: Appliance) -> Ctl:
    """The same, against the shared broker."""

    def ctl(*words: str, stdin: str = "") -> Ran:
        return run("--data-dir", str(shared_broker.data_dir), *words, stdin=stdin)

    return ctl

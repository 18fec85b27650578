"""Faults planted in the broker, one at a time: whatever looks for faults has to find each.

They are in a second build of a few modules; the product's modules hold none of them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.appliance import ROOT
from tests.crash import planted_build
from tests.store import recorder

ELSEWHERE = {"no check", "ignore a full disk", "confirm one more"}
"""Faults that another test than that of the crash states finds."""
SITE = re.compile(r'\bplanted\(b"([^"]+)"\)')


@pytest.fixture(scope="module")
def second_build() -> Path:
    """Compiled beforehand, so that no test waits for it."""
    return planted_build.build()


def found(fault: str) -> list[str]:
    """What was found in a process with this fault."""
    result = subprocess.run(
        [sys.executable, "-m", "tests.crash.planted_run", fault],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    violations: list[str] = json.loads(result.stdout)
    return violations


@pytest.mark.parametrize("fault", [each for each in planted_build.FAULTS if each not in ELSEWHERE])
def test_the_crash_states_show(second_build: Path, fault: str) -> None:
    assert found(fault)


def test_damaged_files_show_that_nothing_is_checked(second_build: Path) -> None:
    assert found("no check")


def test_a_full_disk_that_is_ignored_shows(second_build: Path) -> None:
    assert found("ignore a full disk")


def test_every_fault_that_can_be_planted_is_looked_for() -> None:
    sites = {fault for path in planted_build.planting() for fault in SITE.findall(path.read_text())}
    assert sites == planted_build.FAULTS.keys()
    assert len(sites) == 12


def test_the_product_holds_none_of_the_faults(second_build: Path) -> None:
    """The names are in the second build, so that looking for them would find them."""
    names = [fault.encode() + b"\0" for fault in planted_build.FAULTS]
    hooks = [*names, planted_build.VARIABLE.encode()]
    product = planted_build.product()
    assert not [(path, hook) for path in product for hook in hooks if hook in path.read_bytes()]
    second = b"".join(path.read_bytes() for path in planted_build.binaries())
    assert not [hook for hook in hooks if hook not in second]


def test_the_product_has_no_function_that_plants_or_records() -> None:
    """Failpoints and the recorder are an observer of the tests (`tests/store/recorder.pyx`)."""
    words = re.compile(rb"\b(?:failpoints?|stall_seconds|recorded_bytes|fail_after)\b")
    product = [*planted_build.product(), *(ROOT / "broker").rglob("*.py")]
    assert not [path for path in product if words.search(path.read_bytes())]
    assert words.search(Path(recorder.__file__).read_bytes())


def test_a_fault_is_planted_before_the_product_is_imported() -> None:
    program = (
        "from tests.crash import planted_build\n"
        "import broker.store.files.disk\n"
        "planted_build.use('no sync')"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "imported before a fault was planted: ['broker.store." in result.stderr

"""The installed package: the command `leveret`, and all files that the product needs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.appliance import ROOT, Appliance

COMMAND = """#!{python}
import sys
from {module} import {function}
sys.exit({function}())
"""


@pytest.fixture(scope="module")
def leveret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command as pip would install it, in a place without the repository. The modules that are
    compiled already are copied: `make package` builds all of a package."""
    place = tmp_path_factory.mktemp("installed")
    library = place / "lib"
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(library)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=120,
    )
    for module in (ROOT / "broker").rglob("*.so"):
        shutil.copy(module, library / module.relative_to(ROOT))
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module_name, function = scripts["leveret"].split(":")
    command = place / "leveret"
    command.write_text(COMMAND.format(python=sys.executable, module=module_name, function=function))
    command.chmod(0o755)
    return command


@pytest.fixture
def installed(leveret: Path, tmp_path: Path, make_leveret: Callable[..., Appliance]) -> Appliance:
    appliance = make_leveret(start=False)
    appliance.program = [str(leveret)]
    appliance.directory = tmp_path
    appliance.environment["PYTHONPATH"] = str(leveret.parent / "lib")
    return appliance.start()


def get(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=60) as answer:
        found: bytes = answer.read()
    return found


def output(leveret: Path, words: list[str], directory: Path) -> str:
    """What the installed command prints, run where no source of the project lies."""
    done = subprocess.run(
        [str(leveret), *words],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(leveret.parent / "lib")},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout


def test_an_installed_appliance_serves_its_pages_and_obeys_its_own_ctl(
    installed: Appliance, leveret: Path, tmp_path: Path
) -> None:
    web = "http://{}:{}".format(*installed.addresses["http"])
    page = get(f"{web}/login").decode()
    files = re.findall(r'(?:href|src)="(/static/[^"]+)"', page)
    assert files
    assert all(get(web + path) for path in files)
    words = ["ctl", "--data-dir", str(installed.data_dir), "list_users", "--silent"]
    assert "guest" in output(leveret, words, tmp_path)
    assert installed.stop() == 0


def test_help_of_an_installed_command_names_it(leveret: Path, tmp_path: Path) -> None:
    for words, expected in (
        (["serve", "--help"], "usage: leveret serve [options]"),
        (["ctl", "help", "add_user"], "leveret ctl add_user ada"),
        (["perf", "help"], "usage: leveret perf MODE"),
    ):
        told = output(leveret, words, tmp_path)
        assert expected in told
        assert "manage.py" not in told


@pytest.mark.parametrize("command", [["bdist_wheel"], ["build_ext", "--inplace"]])
def test_planted_faults_are_built_into_no_package_and_no_checkout(command: list[str]) -> None:
    result = subprocess.run(
        [sys.executable, "setup.py", "-q", *command],
        cwd=ROOT,
        env={**os.environ, "LEVERET_PLANTED": "1"},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode != 0
    assert "planted faults belong into no package" in result.stderr

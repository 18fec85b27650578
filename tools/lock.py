"""Note the installed version of every package that the project needs, directly or not, with the
hashes of its files.

    .venv/bin/python tools/lock.py [--check]

`requirements-build.lock` holds what compiles the modules, `requirements.lock` what else `make run`
installs before it starts, `requirements-reports.lock` what only the reports need (Spark and Java),
`requirements-test.lock` what `make test` adds.
To take newer versions: install them into .venv with pip, run the tests, write the lock files.
The hashes are those that the package index publishes, for every platform; `uv` asks it for them.
`--check` compares the lock files with pyproject.toml and with what is installed; it needs no index.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "requirements-build.lock"
RUN = ROOT / "requirements.lock"
REPORTS = ROOT / "requirements-reports.lock"
TEST = ROOT / "requirements-test.lock"
HEADER = "# Written by tools/lock.py from pyproject.toml and the installed versions. Do not edit.\n"
# The oldest Python needs most: what a newer one has itself is a package there.
OLDEST = {"python_version": "3.11", "python_full_version": "3.11.0"}
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class LockError(Exception):
    """The lock files cannot be written; the text says why."""


def wanted() -> dict[Path, list[Requirement]]:
    """By lock file, the requirements that it adds to those of the files before it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    run = [*project["dependencies"], *extras["demo"]]
    texts = {BUILD: extras["build"], RUN: run, REPORTS: extras["reports"], TEST: extras["test"]}
    return {path: [Requirement(text) for text in each] for path, each in texts.items()}


def closure(requirements: list[Requirement]) -> dict[str, str]:
    """Name to version of everything the requirements lead to, from the installed metadata."""
    found: dict[str, str] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = list(requirements)
    while waiting:
        requirement = waiting.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if key in seen:
            continue
        seen.add(key)
        package = distribution(requirement.name)
        found[key[0]] = package.version
        for text in package.requires or []:
            child = Requirement(text)
            extras = requirement.extras or {""}
            if any(_applies(child, extra) for extra in extras):
                waiting.append(child)
    return found


def _applies(requirement: Requirement, extra: str) -> bool:
    marker = requirement.marker
    return marker is None or marker.evaluate({**OLDEST, "extra": extra})


def closures() -> dict[Path, dict[str, str]]:
    """By lock file, name to version of what it has to hold. Raises LockError."""
    found: dict[Path, dict[str, str]] = {}
    before: set[str] = set()
    for path, requirements in wanted().items():
        try:
            versions = closure(requirements)
        except PackageNotFoundError as error:
            raise LockError(
                f"{error.name} is not installed; install the ranges of pyproject.toml first"
            ) from None
        found[path] = {name: version for name, version in versions.items() if name not in before}
        before |= versions.keys()
    return found


def hashes(versions: dict[str, str]) -> dict[str, list[str]]:
    """Name to the SHA-256 of every file of that version in the index. Raises LockError."""
    command = [str(Path(sys.executable).parent / "uv"), "pip", "compile", "--quiet", "--no-deps"]
    command += ["--generate-hashes", "--no-annotate", "--no-header", "--universal", "-"]
    asked = "".join(f"{name}=={version}\n" for name, version in versions.items())
    result = subprocess.run(command, input=asked, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise LockError(f"the index does not give the hashes:\n{result.stderr}")
    found = entries(result.stdout)
    lacking = [name for name in versions if not found.get(name, ("", []))[1]]
    if lacking:
        raise LockError(f"the index has no hashes of {', '.join(lacking)}")
    return {name: found[name][1] for name in versions}


def render(versions: dict[str, str], sums: dict[str, list[str]]) -> str:
    rows = (
        " \\\n    ".join([f"{name}=={versions[name]}", *(f"--hash=sha256:{s}" for s in sums[name])])
        for name in sorted(versions)
    )
    return HEADER + "".join(f"{row}\n" for row in rows)


def entries(text: str) -> dict[str, tuple[str, list[str]]]:
    """Name to version and hashes, as the text of a lock file has them."""
    found: dict[str, tuple[str, list[str]]] = {}
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, version = line.split()[0].partition("==")
            found[canonicalize_name(name)] = (version, HASH.findall(line))
    return found


def locked(path: Path) -> dict[str, str]:
    """Name to version, as a lock file has it."""
    return {name: version for name, (version, _) in entries(path.read_text()).items()}


def problems() -> list[str]:
    """What the lock files lack, hold without need or without a hash, or pin out of range."""
    result = []
    versions: dict[str, str] = {}
    for path, requirements in wanted().items():
        versions |= locked(path)
        for requirement in requirements:
            version = versions.get(canonicalize_name(requirement.name))
            if version is None:
                result.append(f"{requirement} is in no lock file; run `make lock`")
            elif not requirement.specifier.contains(version, prereleases=True):
                result.append(f"{requirement} does not allow the locked {version}; run `make lock`")
    for path, needed in closures().items():
        found = entries(path.read_text())
        result += [f"{name} has no hash in {path.name}" for name in found if not found[name][1]]
        result += [f"{name} is not in {path.name}" for name in needed.keys() - found.keys()]
        result += [f"nothing needs {name} of {path.name}" for name in found.keys() - needed.keys()]
    return result


def main() -> int:
    try:
        if sys.argv[1:] == ["--check"]:
            found = problems()
            print("\n".join(found) or "lock files fit pyproject.toml")
            return 1 if found else 0
        needed = closures()
        sums = hashes({name: v for versions in needed.values() for name, v in versions.items()})
    except LockError as error:
        print(error)
        return 1
    for path, versions in needed.items():
        path.write_text(render(versions, sums))
    print("; ".join(f"{path.name}: {len(versions)} packages" for path, versions in needed.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

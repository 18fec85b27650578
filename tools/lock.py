"""Note the installed version of every package that the project needs, directly or not.

    .venv/bin/python tools/lock.py [--check]

`requirements.lock` holds what `make run` installs, `requirements-test.lock` what `make test` adds.
To take newer versions: install them into .venv with pip, run the tests, write the lock files.
`--check` compares the lock files with the ranges of pyproject.toml and changes nothing.
"""

from __future__ import annotations

import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
RUN = ROOT / "requirements.lock"
TEST = ROOT / "requirements-test.lock"
HEADER = "# Written by tools/lock.py from pyproject.toml and the installed versions. Do not edit.\n"


def wanted() -> tuple[list[Requirement], list[Requirement]]:
    """The requirements of `make run` and those that `make test` adds."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    run = [*project["dependencies"], *extras["reports"], *extras["demo"], *extras["build"]]
    return [Requirement(text) for text in run], [Requirement(text) for text in extras["test"]]


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
            if child.marker is None or any(child.marker.evaluate({"extra": e}) for e in extras):
                waiting.append(child)
    return found


def render(versions: dict[str, str]) -> str:
    return HEADER + "".join(f"{name}=={versions[name]}\n" for name in sorted(versions))


def locked(path: Path) -> dict[str, str]:
    """Name to version, as a lock file has it."""
    lines = path.read_text().splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return dict(pairs)


def problems() -> list[str]:
    """What the lock files lack, or pin outside the range that pyproject.toml gives."""
    run, test = wanted()
    result = []
    for requirements, versions in (
        (run, locked(RUN)),
        (test, {**locked(RUN), **locked(TEST)}),
    ):
        for requirement in requirements:
            version = versions.get(canonicalize_name(requirement.name))
            if version is None:
                result.append(f"{requirement} is in no lock file; run `make lock`")
            elif not requirement.specifier.contains(version, prereleases=True):
                result.append(f"{requirement} does not allow the locked {version}; run `make lock`")
    return result


def main() -> int:
    if sys.argv[1:] == ["--check"]:
        found = problems()
        print("\n".join(found) or "lock files fit pyproject.toml")
        return 1 if found else 0
    run, test = wanted()
    try:
        base = closure(run)
        added = {name: v for name, v in closure(test).items() if name not in base}
    except PackageNotFoundError as error:
        print(f"{error.name} is not installed; install the ranges of pyproject.toml first")
        return 1
    RUN.write_text(render(base))
    TEST.write_text(render(added))
    print(f"{RUN.name}: {len(base)} packages; {TEST.name}: {len(added)} more")
    return 0


if __name__ == "__main__":
    sys.exit(main())

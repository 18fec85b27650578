"""Compare the locked versions with a database of known flaws on this machine; no network.

    .venv/bin/python tools/advisories.py DIRECTORY

The directory is a copy of github.com/pypa/advisory-database, or any tree of files in the OSV format
(https://ossf.github.io/osv-schema/), YAML or JSON. Status 0: no match; 1: matches, a line each;
64: no usable database. The date of its newest entry is printed: what became known later is not in.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

sys.path.insert(0, str(Path(__file__).resolve().parent))

import lock

EX_USAGE = 64
# libyaml's loader if PyYAML was built with it: ten times as fast. Both are safe ones.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def advisories(directory: Path) -> Iterator[dict[str, Any]]:
    """Every entry below the directory; files of another kind are passed over."""
    for path in sorted(directory.rglob("*")):
        if path.suffix == ".json":
            entry = json.loads(path.read_text(encoding="utf-8"))
        elif path.suffix in (".yaml", ".yml"):
            # The safe loader, by whichever name.
            entry = yaml.load(path.read_text(encoding="utf-8"), Loader=LOADER)  # noqa: S506
        else:
            continue
        if isinstance(entry, dict) and "id" in entry and "affected" in entry:
            yield entry


def affects(affected: dict[str, Any], version: str) -> bool:
    """Whether a version is listed, or lies in a range, of one `affected` entry."""
    if version in affected.get("versions", ()):
        return True
    return any(
        _within(row.get("events", ()), Version(version))
        for row in affected.get("ranges", ())
        if row.get("type") == "ECOSYSTEM"
    )


def _within(events: list[dict[str, str]], version: Version) -> bool:
    inside = False
    for event in events:
        for kind, text in event.items():
            try:
                bound = Version(text)
            except InvalidVersion:
                continue
            if kind == "introduced" and version >= bound:
                inside = True
            elif (kind == "fixed" and version >= bound) or (
                kind == "last_affected" and version > bound
            ):
                inside = False
    return inside


def matches(entry: dict[str, Any], versions: dict[str, str]) -> Iterator[str]:
    """A line for every locked package that an entry is about."""
    if "withdrawn" in entry:
        return
    for affected in entry["affected"]:
        package = affected.get("package", {})
        name = canonicalize_name(str(package.get("name", "")))
        if package.get("ecosystem") != "PyPI" or name not in versions:
            continue
        if affects(affected, versions[name]):
            known_as = " ".join([entry["id"], *entry.get("aliases", ())])
            text = str(entry.get("summary") or entry.get("details", "")).strip()
            yield f"{name} {versions[name]}: {known_as}: {' '.join(text.split())[:200]}"


def main() -> int:
    directory = Path(sys.argv[1]) if len(sys.argv) == 2 and sys.argv[1] else None
    if directory is None or not directory.is_dir():
        print(__doc__)
        return EX_USAGE
    versions = {
        name: version for path in lock.wanted() for name, version in lock.locked(path).items()
    }
    found: set[str] = set()
    count, newest = 0, ""
    for entry in advisories(directory):
        count += 1
        newest = max(newest, str(entry.get("modified", "")))
        found.update(matches(entry, versions))
    if not count:
        print(f"{directory}: no advisories in it")
        return EX_USAGE
    print("\n".join(sorted(found)) or "no known flaw")
    print(f"{len(versions)} packages, {count} advisories, the newest of {newest[:10]}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

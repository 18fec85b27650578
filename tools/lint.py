"""All linters, one by one: ruff, mypy, stubtest, cython-lint, and the generators' `--check`.

    .venv/bin/python tools/lint.py [name ...]

Names choose among them; without one, all run. Every linter runs even if one before it found
something; the status is 1 if any did.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / "tools"


def compiled_sources() -> list[str]:
    found = [p for folder in ("broker", "tests") for p in (ROOT / folder).rglob("*.p[yx][xd]")]
    return sorted(str(path.relative_to(ROOT)) for path in found)


class Passed:
    """Files in which cython-lint found nothing, by their content: it reads each by itself, and all
    of them take a quarter of a minute."""

    def __init__(self) -> None:
        self._file = ROOT / "build" / "cython-lint.json"
        self._rules = hashlib.sha256()
        for path in (ROOT / "pyproject.toml", ROOT / "requirements-test.lock"):
            self._rules.update(path.read_bytes())
        try:
            self._known = set(json.loads(self._file.read_text()))
        except (OSError, ValueError):
            self._known = set()

    def _key(self, source: str) -> str:
        digest = self._rules.copy()
        digest.update(source.encode() + b"\0" + (ROOT / source).read_bytes())
        return digest.hexdigest()

    def others(self, sources: list[str]) -> list[str]:
        return [source for source in sources if self._key(source) not in self._known]

    def keys(self, sources: list[str]) -> list[str]:
        return sorted(map(self._key, sources))

    def note(self, keys: list[str]) -> None:
        """Nothing was found in the files of these keys, and no other is there any more."""
        self._file.parent.mkdir(exist_ok=True)
        part = self._file.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(keys))
        part.replace(self._file)


def stubbed() -> list[str]:
    """The compiled modules that have a stub."""
    found = [path.relative_to(ROOT).with_suffix("") for path in (ROOT / "broker").rglob("*.pyi")]
    return sorted(".".join(path.parts) for path in found)


def generators() -> list[Path]:
    """The tools that can tell whether what they generate is up to date."""
    tools = sorted(TOOLS.glob("*.py"))
    return [p for p in tools if "--check" in p.read_text() and p.name != Path(__file__).name]


def commands() -> dict[str, list[str]]:
    """Name to command line of every linter."""
    python = sys.executable
    found = {
        "ruff": [python, "-m", "ruff", "check", "."],
        "mypy": [python, "-m", "mypy"],
        # What a stub leaves out is not for Python code; what it has must be there as it says.
        "stubtest": [
            *(python, "-m", "mypy.stubtest", "--concise", "--mypy-config-file", "pyproject.toml"),
            *("--allowlist", str(TOOLS / "stubtest.allow")),
            *("--ignore-missing-stub", "--ignore-disjoint-bases"),
            *stubbed(),
        ],
        "cython-lint": [
            str(Path(python).parent / "cython-lint"),
            *Passed().others(compiled_sources()),
        ],
        "compiled": [python, str(TOOLS / "compiled.py")],
    }
    for path in generators():
        found[path.stem] = [python, str(path), "--check"]
    return found


def main() -> int:
    known = commands()
    wanted = sys.argv[1:] or list(known)
    # Linters start one another by name.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    status = 0
    for name in wanted:
        keys = Passed().keys(compiled_sources()) if name == "cython-lint" else []
        if known[name][1:] == []:
            print(f"{name}: ok, nothing has changed", flush=True)
            continue
        result = subprocess.run(
            known[name],
            cwd=ROOT,
            env={**os.environ, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        print(f"{name}: {'ok' if result.returncode == 0 else 'found something'}", flush=True)
        if result.returncode != 0:
            print(result.stdout, end="", flush=True)
            status = 1
        elif name == "cython-lint":
            Passed().note(keys)
    return status


if __name__ == "__main__":
    sys.exit(main())

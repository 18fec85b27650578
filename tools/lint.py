"""All linters, one by one: ruff, mypy, stubtest, cython-lint, and the generators' `--check`.

    .venv/bin/python tools/lint.py [name ...]

Names choose among them; without one, all run. Every linter runs even if one before it found
something; the status is 1 if any did.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / "tools"


def compiled_sources() -> list[str]:
    found = [p for folder in ("broker", "tests") for p in (ROOT / folder).rglob("*.p[yx][xd]")]
    return sorted(str(path.relative_to(ROOT)) for path in found)


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
        "cython-lint": [str(Path(python).parent / "cython-lint"), *compiled_sources()],
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
    return status


if __name__ == "__main__":
    sys.exit(main())

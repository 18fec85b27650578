"""Set up what `make run` or `make test` needs: system packages, .venv, packages, compiled modules.

    python3 tools/environment.py run|test

Standard library only: nothing but Python and make may be assumed. Each step looks first and does
nothing when its result is there, so that the second start takes a moment. pip and apt keep the
machine's own settings (index, proxy, certificates).
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
LOCKS = {"run": ["requirements.lock"], "test": ["requirements.lock", "requirements-test.lock"]}
EX_UNAVAILABLE = 69
EX_OSERR = 71


class SetUpError(Exception):
    """Set-up cannot go on; the text says what to do."""


def main() -> int:
    goal = sys.argv[1] if len(sys.argv) == 2 else ""
    if goal not in LOCKS:
        print(__doc__)
        return 64
    if sys.version_info < (3, 11):
        say(f"Python 3.11 or newer is needed; python3 is {sys.version.split()[0]}")
        return EX_UNAVAILABLE
    (ROOT / "build").mkdir(exist_ok=True)
    try:
        with (ROOT / "build" / "environment.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            install_system_packages(goal)
            create_virtual_environment()
            install_packages(goal)
            compile_modules()
            if goal == "test":
                compile_planted_faults()
    except SetUpError as error:
        say(str(error))
        return EX_UNAVAILABLE
    except OSError as error:
        say(f"cannot set up in {ROOT}: {error}")
        return EX_OSERR
    return 0


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# --- system packages -------------------------------------------------------------------------


def missing_system_packages(goal: str) -> list[str]:
    """Debian's names of the packages whose files are not on this machine."""
    include = Path(sysconfig.get_paths()["include"])
    found = {
        "gcc": shutil.which("gcc") or shutil.which("cc"),
        "libc6-dev": Path("/usr/include/stdio.h").exists(),
        "python3-dev": (include / "Python.h").exists(),
        "python3-venv": importlib.util.find_spec("ensurepip"),
    }
    if goal == "test":
        found["chromium"] = browser()
    return [name for name, there in found.items() if not there]


def browser() -> str | None:
    """The browser that the tests drive."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("LEVERET_TEST_BROWSER") or next(
        (path for name in names if (path := shutil.which(name))), None
    )


def install_system_packages(goal: str) -> None:
    names = missing_system_packages(goal)
    if not names:
        return
    install = ["apt-get", "install", "--yes", "--no-install-recommends", *names]
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        line = shlex.join([part for part in install if part != "--yes"])
        raise SetUpError(f"these system packages are missing; please run:\n  sudo {line}")
    say(f"Installing system packages: {' '.join(names)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    commands = [install]
    if not any(Path("/var/lib/apt/lists").glob("*Packages*")):
        commands.insert(0, ["apt-get", "update"])
    run(commands, environment, f"please run:\n  {shlex.join(install)}")
    left = missing_system_packages(goal)
    if left:
        raise SetUpError(f"still missing after the installation: {' '.join(left)}")


# --- Python packages -------------------------------------------------------------------------


def create_virtual_environment() -> None:
    try:
        version = subprocess.run(
            [PYTHON, "-c", "import sys, pip; print(sys.version_info >= (3, 11))"],
            capture_output=True,
            text=True,
            check=False,
        ).stdout.strip()
    except OSError:
        version = ""
    if version == "True":
        return
    say("Creating the virtual environment .venv")
    clear = ["--clear"] if VENV.exists() else []
    run([[sys.executable, "-m", "venv", *clear, str(VENV)]], None, "python3-venv may be missing")


def install_packages(goal: str) -> None:
    """Install what the lock files name, once per content of the lock files."""
    stamp = VENV / "leveret-installed.json"
    try:
        installed = json.loads(stamp.read_text())
    except (OSError, ValueError):
        installed = {}
    wanted = {name: fingerprint(ROOT / name) for name in LOCKS[goal]}
    if all(installed.get(name) == value for name, value in wanted.items()):
        return
    started = time.monotonic()
    say("Installing Python packages (Spark is large: a minute or two the first time)")
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--no-input"]
    pip += ["--disable-pip-version-check", "--require-hashes"]
    for name in LOCKS[goal]:
        pip += ["--requirement", str(ROOT / name)]
    run([pip], None, "is the package index within reach? pip's own settings are used")
    stamp.write_text(json.dumps({**installed, **wanted}, indent=1) + "\n")
    say(f"Installed in {time.monotonic() - started:.0f} s")


def fingerprint(path: Path) -> str:
    state = hashlib.sha256(path.read_bytes())
    state.update(PYTHON.resolve().as_posix().encode())
    return state.hexdigest()


# --- compiled modules ------------------------------------------------------------------------


def compile_modules() -> None:
    check = subprocess.run(
        [PYTHON, str(ROOT / "tools" / "compiled.py"), "--list"],
        capture_output=True,
        text=True,
        check=True,
    )
    names = check.stdout.split()
    if not names:
        return
    started = time.monotonic()
    say(f"Compiling {len(names)} module{'s' if len(names) > 1 else ''}")
    result = subprocess.run(
        [PYTHON, str(ROOT / "setup.py"), "build_ext", "--inplace", "-q"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise SetUpError(f"{result.stdout}\na module does not compile; see above")
    say(f"Compiled in {time.monotonic() - started:.0f} s")


def compile_planted_faults() -> None:
    """The second build of a few modules, for the crash tests, which would wait for it else."""
    command = [PYTHON, "-m", "tests.crash.planted_build"]
    result = subprocess.run(command, cwd=ROOT, check=False)
    if result.returncode != 0:
        raise SetUpError("a module with planted faults does not compile; see above")


def run(commands: list[list[str]], environment: dict[str, str] | None, advice: str) -> None:
    """Run commands one after the other; what they print is shown only if one fails."""
    for command in commands:
        result = subprocess.run(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        if result.returncode != 0:
            say(result.stdout)
            status = result.returncode
            raise SetUpError(f"{shlex.join(command)} ended with status {status}; {advice}")


if __name__ == "__main__":
    sys.exit(main())

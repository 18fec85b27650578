"""Set up what `make` needs: system packages, .venv, packages, compiled modules.

    python3 tools/environment.py start|reports|run|test

`start`: all that the appliance needs but the packages of reports, Spark and Java, which are the
largest. `reports`: these, for `make run` beside the running appliance. `run`: both. `test`: what
the tests need, too.

Standard library only: nothing but Python and make may be assumed. Each step looks first and does
nothing when its result is there, so that the second start takes a moment. Python packages are
installed while the compiler is, and while it compiles the modules. pip and apt keep the machine's
own settings (index, proxy, certificates).
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
import threading
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
TO_COMPILE = "requirements-build.lock"
REPORTS = "requirements-reports.lock"
LOCKS = {
    "start": ["requirements.lock"],
    "reports": [REPORTS],
    "run": ["requirements.lock", REPORTS],
    "test": ["requirements.lock", REPORTS, "requirements-test.lock"],
}
"""Goal -> the lock files of its packages, besides those that compile the modules."""

INSTALLING = VENV / "leveret-reports.installing"
"""A file that is locked while the packages of reports are installed. The reports process looks at
it: runs wait until then (`management/reports/installing.py`)."""

INSTALLED = VENV / "leveret-installed.json"
INSTALLED_LOCK = threading.Lock()

FOR_VENV = "python3-venv"
APT_INSTALL = ("apt-get", "install", "--no-install-recommends")

EX_UNAVAILABLE = 69
EX_OSERR = 71
LINE_SECONDS = 5.0


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
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("Waiting for another set-up in this directory; it may be installing Spark")
                fcntl.flock(lock, fcntl.LOCK_EX)
            if goal == "reports":
                install_reports_quietly()
            else:
                set_up(goal)
    except SetUpError as error:
        say(str(error))
        return EX_UNAVAILABLE
    except OSError as error:
        say(f"cannot set up in {ROOT}: {error}")
        return EX_OSERR
    return 0


def set_up(goal: str) -> None:
    missing = fetch_system_packages(goal)
    # First what the virtual environment needs: it is made while the compiler is installed.
    install_system_packages([name for name in missing if name == FOR_VENV])
    progress = Progress()
    folders = ["broker", "tests"] if goal == "test" else ["broker"]
    attempted, has_build_packages = threading.Event(), False

    def install_python_packages() -> None:
        nonlocal has_build_packages
        try:
            create_virtual_environment()
            install_packages([TO_COMPILE], progress, "build packages")
            has_build_packages = True
        finally:
            attempted.set()
        install_packages(LOCKS[goal], progress, "packages")

    def install_and_compile() -> None:
        install_system_packages([name for name in missing if name != FOR_VENV])
        left = missing_system_packages(goal)
        if left:
            raise SetUpError(f"still missing after the installation: {' '.join(left)}")
        attempted.wait()
        if has_build_packages:
            compile_modules(folders, progress)

    # No package is in both sets (`tools/lock.py`), so that one may be used while the other is
    # installed.
    side_by_side(install_python_packages, install_and_compile)
    if goal == "test":
        compile_planted_faults()


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# --- progress ----------------------------------------------------------------------------------


class Progress:
    """How far the steps have come, by their names: a line that is written anew at a terminal, a
    line every few seconds elsewhere."""

    def __init__(self) -> None:
        self._steps: dict[str, str] = {}
        self._lock = threading.Lock()
        self._at = time.monotonic()
        self._is_terminal = sys.stderr.isatty()

    def note(self, step: str, state: str) -> None:
        """`state` is a count, "12 of 35"."""
        with self._lock:
            self._steps[step] = state
            if self._is_terminal:
                print(f"\r  {self._text()}\x1b[K", end="", file=sys.stderr, flush=True)
            elif time.monotonic() >= self._at + LINE_SECONDS:
                self._at = time.monotonic()
                say(f"  {self._text()}")

    def end(self, step: str, text: str) -> None:
        """The step is over; `text` tells how long it took."""
        with self._lock:
            self._steps.pop(step, None)
            say(f"\r{text}\x1b[K" if self._is_terminal else text)

    def _text(self) -> str:
        return ", ".join(f"{step} {state}" for step, state in self._steps.items())


def side_by_side(*steps: Callable[[], None]) -> None:
    """Runs the steps at the same time. Raises the first error when all have ended."""
    errors: list[BaseException] = []

    def run_one(step: Callable[[], None]) -> None:
        try:
            step()
        except (SetUpError, OSError) as error:
            errors.append(error)

    threads = [threading.Thread(target=run_one, args=(step,)) for step in steps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def watch(
    command: list[str], on_line: Callable[[str], None], advice: str, **variables: str
) -> None:
    """Runs a command, with these variables besides the present ones, and hands over each line that
    it prints. Raises SetUpError with all of them if it fails."""
    printed: list[str] = []
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            printed.append(line)
            on_line(line)
    if process.returncode != 0:
        status = process.returncode
        raise SetUpError(
            f"{''.join(printed)}\n{shlex.join(command)} ended with status {status}; {advice}"
        )


# --- system packages -------------------------------------------------------------------------


def missing_system_packages(goal: str) -> list[str]:
    """Debian's names of the packages whose files are not on this machine."""
    include = Path(sysconfig.get_paths()["include"])
    found = {
        "gcc": shutil.which("gcc") or shutil.which("cc"),
        "libc6-dev": Path("/usr/include/stdio.h").exists(),
        "python3-dev": (include / "Python.h").exists(),
        FOR_VENV: importlib.util.find_spec("ensurepip"),
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


def fetch_system_packages(goal: str) -> list[str]:
    """Download what is missing; gives its names. Raises SetUpError if that takes another user."""
    names = missing_system_packages(goal)
    if not names:
        return names
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        line = shlex.join([*APT_INSTALL, *names])
        raise SetUpError(f"these system packages are missing; please run:\n  sudo {line}")
    say(f"Installing system packages: {' '.join(names)}")
    commands = [[*APT_INSTALL, "--yes", "--download-only", *names]]
    if not any(Path("/var/lib/apt/lists").glob("*Packages*")):
        commands.insert(0, ["apt-get", "update"])
    started = time.monotonic()
    run_apt(commands, names)
    say(f"System packages: downloaded in {time.monotonic() - started:.0f} s")
    return names


def install_system_packages(names: list[str]) -> None:
    """Install what is already downloaded."""
    if not names:
        return
    started = time.monotonic()
    run_apt([[*APT_INSTALL, "--yes", *names]], names)
    say(f"{' '.join(names)}: installed in {time.monotonic() - started:.0f} s")


def run_apt(commands: list[list[str]], names: list[str]) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run(commands, environment, f"please run:\n  {shlex.join([*APT_INSTALL, *names])}")


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


def installed_packages() -> dict[str, str]:
    """Lock file -> the fingerprint of its content when its packages were installed."""
    try:
        installed = json.loads(INSTALLED.read_text())
    except (OSError, ValueError):
        return {}
    return installed if isinstance(installed, dict) else {}


def install_packages(names: list[str], progress: Progress, step: str) -> None:
    """Install what the lock files name, once per content of the lock files."""
    wanted = {name: fingerprint(ROOT / name) for name in names}
    installed = installed_packages()
    if all(installed.get(name) == value for name, value in wanted.items()):
        return
    pip = [str(PYTHON), "-m", "pip", "install", "--no-input", "--progress-bar", "off"]
    # Not byte-compiled: Python does it when it first imports a module, and most are never imported.
    pip += ["--no-compile", "--disable-pip-version-check", "--require-hashes"]
    # The lock files name every package (`tools/lock.py`). A package of one may need one of
    # another, which the pip beside this one has perhaps not installed yet.
    pip += ["--no-deps"]
    for name in names:
        pip += ["--requirement", str(ROOT / name)]
    count = sum((ROOT / name).read_text().count("==") for name in names)
    found = 0
    started = fetched = time.monotonic()

    def on_line(line: str) -> None:
        nonlocal found, fetched
        if line.startswith(("Collecting ", "Requirement already satisfied: ")):
            found += 1
            progress.note(step, f"{found} of {count} fetched")
        elif line.startswith("Installing collected packages"):
            fetched = time.monotonic()
            progress.note(step, f"{count} are installed")

    watch(pip, on_line, "is the package index within reach? pip's own settings are used")
    with INSTALLED_LOCK:
        INSTALLED.write_text(json.dumps({**installed_packages(), **wanted}, indent=1) + "\n")
    ended = time.monotonic()
    progress.end(
        step,
        f"{count} Python {step}: downloaded in {fetched - started:.0f} s, "
        f"installed in {ended - fetched:.0f} s",
    )


def install_reports_quietly() -> None:
    """The packages of reports, with what the appliance leaves of the processors."""
    os.nice(19)
    with INSTALLING.open("w") as mark:
        fcntl.flock(mark, fcntl.LOCK_EX)
        try:
            install_packages([REPORTS], Progress(), "packages")
        finally:
            INSTALLING.unlink(missing_ok=True)


def fingerprint(path: Path) -> str:
    state = hashlib.sha256(path.read_bytes())
    state.update(PYTHON.resolve().as_posix().encode())
    return state.hexdigest()


# --- compiled modules ------------------------------------------------------------------------


def compile_modules(folders: list[str], progress: Progress) -> None:
    """Compile the modules of the folders that have changed."""
    check = subprocess.run(
        [PYTHON, str(ROOT / "tools" / "compiled.py"), "--list", *folders],
        capture_output=True,
        text=True,
        check=True,
    )
    count = len(check.stdout.split())
    if not count:
        return
    started = time.monotonic()
    compiled = 0

    def on_line(line: str) -> None:
        nonlocal compiled
        compiled += line.startswith("[")
        progress.note("modules", f"{compiled} of {count} compiled")

    build = [str(PYTHON), str(ROOT / "setup.py"), "build_ext", "--inplace"]
    advice = "a module does not compile; see above"
    watch(build, on_line, advice, LEVERET_FOLDERS=" ".join(folders))
    progress.end("modules", f"{count} modules: compiled in {time.monotonic() - started:.0f} s")


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

"""Rules of the house that a machine can see. Each exception is listed with its reason."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.tidy.sources import PACKAGES, ROOT, documents, files, relative

LINE_MAX = {
    **dict.fromkeys((".py", ".pyx", ".pxd", ".pyi", ".h", ".sh"), 100),
    **dict.fromkeys((".js", ".css"), 140),
}
FILE_LINES_MAX = 500
# Longer than a file should be, and why it is one file all the same.
LONG_FILES: dict[str, str] = {
    "broker/schema/arguments.py": "one table, a row per argument",
    "broker/settings/config.py": "one table, a row per setting",
    "broker/schema/control_schema.py": "one table, a row per verb",
    "broker/features/delayed/holding.pyx": "one class: what waits, leaves and is offered again",
    "broker/store/bodies/store.pyx": "one class: references, rounds and files share its tables",
    "broker/store/commit/persister.pyx": "one class: asking, making and ending a round share lists",
    "broker/store/files/disk.pyx": "the one door: all access to files",
    "broker/store/log/queue_store.pyx": "one class on the hot path: reads and acks share fields",
    "broker/store/log/segments.pyx": "one class: memory and disk of the same segments",
    "broker/store/streams/store.pyx": "one class: rounds and retention of the same segments",
    "broker/wire/frame_parser.pyx": "one loop over the frames, compiled, and all that stops it",
    "broker/wire/connection.pyx": "one state machine: what a connection is told and asked",
    "broker/wire/channel.pyx": "one class: a publish from its first frame to its confirm",
    "broker/queues/classic.pyx": "one class: a queue from a publish to its settlement",
    "broker/vhosts/defining.py": "one class: all changes share its checks",
    "tests/amqp/error_rows.py": "one table, a row per error",
}
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "stuff"}

# Below the server the clock, randomness and files are handed in, or belong to `store/disk`.
HANDED_IN = {
    "the wall clock": re.compile(r"\btime\.time(?:_ns)?\(|\bdatetime\.(?:now|utcnow|today)\("),
    "a file": re.compile(
        r"(?<![\w.])open\(|\bos\.open\(|\.open\(|\.(?:read|write)_(?:text|bytes)\("
    ),
    "a sleep": re.compile(r"\btime\.sleep\("),
}
# A default for a parameter is handing in: `clock_ms=lambda: time.time_ns() // 1_000_000`.
DEFAULT = re.compile(r"=\s*lambda\b")
MAY: dict[str, dict[str, str]] = {
    "the wall clock": {
        "broker/kernel/clock.pyx": "is the broker's clock",
        "broker/process/logs.py": "says when a line was written",
        "broker/stats/node.py": "shows the machine's own time",
    },
    "a file": {
        "broker/serving/certificates.py": "keeps certificates as they were when loaded",
        "broker/settings/config.py": "reads the first password's file before anything runs",
        "broker/settings/sources.py": "reads the INI file before anything runs",
        "broker/store/files/disk.pyx": "is the door to the file system",
        "broker/store/files/space.pyx": "is a part of that door",
        "broker/store/files/ahead.pyx": "allocates space behind a file",
        "broker/settings/files.py": "keeps the files a person may edit",
        "broker/stats/node.py": "reads /proc and /sys",
    },
}
PROSE_BANNED = re.compile(
    r"\b(blazing(?:ly)?|seamless(?:ly)?|leverag(?:e|es|ing)|state[- ]of[- ]the[- ]art"
    r"|cutting[- ]edge|effortless(?:ly)?|robust and scalable|world[- ]class|supercharge"
    r"|game[- ]chang\w+|delve)\b",
    re.IGNORECASE,
)
EMOJI = re.compile("[\U0001f300-\U0001faff\u2705\u274c\u2728\u26a1\u26a0]")


def code(path_text: str) -> str:
    """The text without comments and string literals over several lines."""
    text = re.sub(r'"""(?:.|\n)*?"""', lambda m: "\n" * m[0].count("\n"), path_text)
    return re.sub(r"#.*", "", text)


def test_it_keeps_lines_short() -> None:
    long = [
        f"{relative(path)}:{number}: {len(line)}"
        for path in files(*LINE_MAX)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > LINE_MAX[path.suffix]
    ]
    assert not long, f"{len(long)} lines are too long:\n" + "\n".join(long[:60])


def test_it_keeps_files_short() -> None:
    long = {
        relative(path): count
        for path in files(".py", ".pyx", ".js", ".css")
        if (count := path.read_text().count("\n")) > FILE_LINES_MAX
    }
    assert not long.keys() - LONG_FILES.keys(), f"split them or say why not: {long}"


def test_it_lists_no_long_file_that_is_short_now() -> None:
    for name in LONG_FILES:
        path = ROOT / name
        assert path.exists() and path.read_text().count("\n") > FILE_LINES_MAX, name


def test_it_gives_no_module_an_empty_name() -> None:
    found = [relative(path) for path in files(".py", ".pyx", ".js") if path.stem in EMPTY_NAMES]
    assert not found


@pytest.mark.parametrize("what", HANDED_IN)
def test_it_hands_in_what_the_lower_floors_need(what: str) -> None:
    wrong = []
    for path in files(".py", ".pyx", under=("broker",)):
        name = relative(path)
        if name.startswith("broker/server/") or name in MAY.get(what, {}):
            continue
        for number, line in enumerate(code(path.read_text()).splitlines(), 1):
            if HANDED_IN[what].search(line) and not DEFAULT.search(line):
                wrong.append(f"{name}:{number}: {line.strip()}")
    assert not wrong, f"{what} below the server:\n" + "\n".join(wrong)


def test_it_speaks_in_one_calm_voice() -> None:
    wrong = []
    written = files(".py", ".pyx", ".pxd", ".js", ".html", under=(*PACKAGES, "tools"))
    for path in [*written, *documents()]:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if PROSE_BANNED.search(line) or EMOJI.search(line):
                wrong.append(f"{relative(path)}:{number}: {line.strip()[:80]}")
    assert not wrong, "\n".join(wrong)


def test_it_leaves_no_reminders_behind() -> None:
    reminder = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")
    wrong = [
        f"{relative(path)}:{number}"
        for path in files(".py", ".pyx", ".pxd", ".js", ".h", under=PACKAGES)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if reminder.search(line)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", PACKAGES)
def test_it_names_every_room(package: str) -> None:
    """A folder with Python in it is a package that says what it is."""
    for path in files(".py", ".pyx", under=(package,)):
        start = path.parent / "__init__.py"
        assert start.exists(), f"{relative(path.parent)} has no __init__.py"


def lint_names() -> list[str]:
    text = subprocess.run(
        [sys.executable, "-c", "import lint; print(*lint.commands())"],
        cwd=ROOT / "tools",
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return text.split()


@pytest.mark.parametrize("name", lint_names())
def test_it_satisfies(name: str) -> None:
    """Linters, generated files, compiled modules: what `make lint` runs."""
    result = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "lint.py"), name],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert result.returncode == 0, result.stdout

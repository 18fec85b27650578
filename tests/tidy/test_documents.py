"""What the documents name is there: files, functions, commands, settings, links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from broker.settings import config
from management import commands
from tests.tidy.sources import ROOT, definitions, documents, members, relative

QUOTED = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
PATH = re.compile(r"(?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:py|pyx|pxd|md|toml|lock|sh|js|css|html)")
MAKE = re.compile(r"\bmake ([a-z][a-z-]*)")
MANAGE = re.compile(r"\bmanage\.py ([a-z]+)")
OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]+)")
# Paths the documents speak of that are not in the repository.
ELSEWHERE = (
    "data/",
    "run/",
    ".venv/",
    "build/",
    "/",
    "~",
    "usage/",
    "history/",
    "reports/",
    "log/",
    "vhosts/",
    "transient/",
)
REQUIRED = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/benchmarks.md",
    "docs/configuration.md",
    "docs/control-socket.md",
    "docs/decisions.md",
    "docs/dependencies.md",
    "docs/follow-a-message.md",
)
HAND_CHECKED = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/follow-a-message.md")
# Options of programs other than ours.
FOREIGN_OPTIONS = {"no-install-recommends", "check", "seconds", "help", "version", "config"}


def text(name: str) -> str:
    path = ROOT / name
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize("name", REQUIRED)
def test_it_has_the_documents_the_map_names(name: str) -> None:
    assert (ROOT / name).exists()


@pytest.mark.parametrize("page", documents(), ids=relative)
def test_it_links_only_to_what_is_there(page: Path) -> None:
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        if "://" not in target and not target.startswith("mailto:"):
            assert (page.parent / target).exists(), f"{relative(page)} links to {target}"


@pytest.mark.parametrize("name", HAND_CHECKED)
def test_it_names_only_files_that_exist(name: str) -> None:
    missing = []
    for word in QUOTED.findall(FENCE.sub("", text(name))):
        target = word.split(":")[0].split()[0] if word.split() else ""
        if PATH.fullmatch(target) and not target.startswith(ELSEWHERE):
            places = (ROOT / target, ROOT / "broker" / target, ROOT / "docs" / target)
            known = any(
                place.exists() or list(place.parent.glob(place.name + ".p*"))
                for place in places
                if place.parent.exists()
            )
            if not known and "." in Path(target).name and "/" not in target:
                known = any(True for _ in ROOT.glob(f"[a-z]*/**/{target}"))
            if not known:
                missing.append(target)
    assert not missing, f"{name} names {missing}"


@pytest.mark.parametrize("name", ["docs/follow-a-message.md"])
def test_it_names_only_functions_that_exist(name: str) -> None:
    """`frames.parse()`, `Queue.publish`, `tail_memory`: the last part of each must be defined."""
    known = definitions()
    missing = set()
    for word in QUOTED.findall(FENCE.sub("", text(name))):
        for identifier in re.findall(r"^(?:[\w.]+[.:])?(\w+)(?:\(.*\))?$", word):
            looks_like_code = not identifier.isdigit() and not PATH.fullmatch(word)
            if looks_like_code and identifier not in known and not is_protocol_word(word):
                missing.add(word)
    assert not missing, f"{name} names {sorted(missing)}"


@pytest.mark.parametrize("name", ["docs/follow-a-message.md"])
def test_it_names_methods_by_their_class(name: str) -> None:
    """`Turn.run`: `run` is defined where `Turn` is, or where a class is that it derives from."""
    missing = set()
    for owner, method in re.findall(r"`([A-Z]\w+)\.(\w+)`", text(name)):
        if method not in members(owner):
            missing.add(f"{owner}.{method}")
    assert not missing, f"{name} names {sorted(missing)}"


def test_the_slow_tests_that_are_named_exist() -> None:
    lines = [line.split("::") for line in text("tests/slow_tests.txt").splitlines()]
    missing = [
        "::".join(line)
        for line in lines
        if len(line) == 2 and f"def {line[1]}(" not in text(line[0])
    ]
    assert not missing


def test_the_tests_that_the_security_standard_names_exist() -> None:
    wrong = []
    for name, test in re.findall(r"`(tests/[\w/.]+)(?:::(\w+))?`", text("docs/asvs.md")):
        if not (ROOT / name).exists() or (test and f"def {test}(" not in text(name)):
            wrong.append(f"{name}::{test}")
    assert not wrong, wrong


def is_protocol_word(word: str) -> bool:
    """AMQP's own names (`basic.publish`, `confirm.select-ok`), flags, and Python's words."""
    classes = ("basic", "channel", "confirm", "connection", "exchange", "queue", "tx")
    return word.split(".")[0] in classes or word in (
        "asyncio",
        "True",
        "False",
        "None",
        "mandatory",
    )


@pytest.mark.parametrize("page", documents(), ids=relative)
def test_it_names_only_commands_that_exist(page: Path) -> None:
    content = page.read_text()
    targets = set(re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE))
    quoted = " ".join([*QUOTED.findall(content), *FENCE.findall(content)])
    for target in MAKE.findall(quoted):
        assert target in targets, f"{relative(page)}: make {target}"
    folder = ROOT / "management" / "management" / "commands"
    for command in MANAGE.findall(quoted):
        known = command in commands.SUMMARIES or (folder / f"{command}.py").exists()
        assert known, f"{relative(page)}: manage.py {command}"


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"])
def test_it_names_only_options_that_exist(name: str) -> None:
    known = {item.option[2:] for item in config.settings()} | FOREIGN_OPTIONS
    found = {option for word in QUOTED.findall(text(name)) for option in OPTION.findall(word)}
    assert found <= known, f"{name} names {sorted(found - known)}"


def test_it_explains_every_dependency() -> None:
    import tomllib

    project = tomllib.loads(text("pyproject.toml"))["project"]
    extras = project["optional-dependencies"].values()
    page = text("docs/dependencies.md").lower()
    for requirement in [*project["dependencies"], *(item for extra in extras for item in extra)]:
        package = re.match(r"[\w-]+", requirement)
        assert package is not None
        assert f"`{package[0].lower()}" in page, (
            f"docs/dependencies.md says nothing of {package[0]}"
        )

"""Words that a reader has to guess at, each with the plain one: logs, pages, docs, comments."""

from __future__ import annotations

import re

import pytest

from tests.tidy.sources import PACKAGES, documents, files, relative

PLAIN = {
    r"so many": "the number: `count` messages, this number of bytes, up to this number",
    r"nobody|somebody|anybody|whoever": "the client, the user, the publisher, the caller",
    r"what is gone": "what was removed",
    r"goes on\b": "continues",
    r"(?:is|are|was|were|be) told": "gets, is called with, is answered with, is reported",
    r"is (?:only )?said": "is reported, is logged",
    r"(?:knows|hears) of": "has, uses, gets",
    r"once in a while": "at intervals, off the hot path",
    r"does not check\b": "fails its checksum",
    r"(?:any|every|all|same|'s) doors?\b|doors\b": "the listener, the protocol, the function",
    r"house\b|rooms\b|(?:a|each|every|one) room\b": "the package, the module, the folder; rules",
    r"had theirs|has its say": "the sentence with its subject and verb",
}
"""Expression -> what to write instead."""

# Verbatim: the name of a test, a user of an example.
QUOTED = re.compile(r"test_\w+|the user_id of somebody else")


def texts() -> list[tuple[str, int, str]]:
    """(file, number, line) of everything that people read."""
    written = files(".py", ".pyx", ".pxd", ".pyi", ".h", ".html", ".js", ".css", under=PACKAGES)
    return [
        (relative(path), number, line)
        for path in [*written, *documents()]
        if path.name != "CHANGELOG.md"
        for number, line in enumerate(QUOTED.sub("", path.read_text()).splitlines(), 1)
    ]


@pytest.fixture(scope="module")
def lines() -> list[tuple[str, int, str]]:
    return texts()


@pytest.mark.parametrize("riddle", PLAIN)
def test_it_uses_the_usual_technical_word(lines: list[tuple[str, int, str]], riddle: str) -> None:
    expression = re.compile(rf"\b(?:{riddle})", re.IGNORECASE)
    wrong = [
        f"{name}:{number}: {line.strip()}"
        for name, number, line in lines
        if expression.search(line)
    ]
    assert not wrong, f"write {PLAIN[riddle]}:\n" + "\n".join(wrong)


def test_it_finds_a_riddle_where_there_is_one() -> None:
    for riddle, line in [
        (next(iter(PLAIN)), "up to so many bytes"),
        (r"(?:is|are|was|were|be) told", "the publisher is told"),
    ]:
        assert re.search(rf"\b(?:{riddle})", line)

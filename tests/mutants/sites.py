"""The places in `.pyx` files where one small change makes a mutant.

Only code is changed: no comment, text, import, decorator, head of a function or class, no
declaration but the value that it gives to a name, nothing that is written to the log, and no
`return 0` by itself, the end of functions that raise an exception or do what they are for.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("store", "queues", "wire")
"""Those of `broker` whose lines are changed; each has its third of a sample."""

_TEXTS = re.compile(
    r'"""(?:.|\n)*?"""|\'\'\'(?:.|\n)*?\'\'\''
    r'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#[^\n]*'
)
_NO_CODE = re.compile(
    r"\s*(?:@|(?:from|import|cimport|include|ctypedef)\b|return 0\s*$"
    r"|(?:async|class|cpdef|def)\b|cdef\b(?![^(]*=)|_?log\.\w+\()"
)
_DECLARATIONS = re.compile(r"\s*(?:cdef|ctypedef)\s*(?::|(?:packed|enum|struct|union|extern)\b)")
_IF = re.compile(r"(\s*(?:el)?if )(.+):\s*")
_CALL = re.compile(r"(\s*)self\.[\w.]+\(.*\)\s*")
_SWAPPED = (
    ("<", "<="),
    (">", ">="),
    ("==", "!="),
    ("is None", "is not None"),
    ("+", "-"),
    ("and", "or"),
    ("+=", "-="),
)
_OTHER = dict(_SWAPPED) | {right: left for left, right in _SWAPPED}
_LONGEST_FIRST = "|".join(map(re.escape, sorted(_OTHER, key=len, reverse=True)))
_OPERATOR = re.compile(rf"(?<= )(?:{_LONGEST_FIRST})(?=[ ):,]|$)")
_VALUES = {"True": "False", "False": "True", "0": "1", "1": "2"}
_VALUE = re.compile(r"(?<![\w.])(?:True|False|[01])(?![\w.])")


@dataclass(frozen=True)
class Site:
    """One change: `line` of `path` (from the root of the checkout) is `before` and becomes `after`,
    both whole and without a line break."""

    path: str
    line: int
    before: str
    after: str

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}"

    @property
    def package(self) -> str:
        return self.path.split("/")[1]

    def __str__(self) -> str:
        return f"{self.place}: {self.before.strip()} → {self.after.strip()}"

    def apply(self, text: str) -> str:
        """The text of the file with the change."""
        lines = text.split("\n")
        assert lines[self.line - 1] == self.before
        lines[self.line - 1] = self.after
        return "\n".join(lines)


def _blank(match: re.Match[str]) -> str:
    """As long as the text or comment, with nothing in it that looks like code."""
    return re.sub(r"[^\n]", " " if match[0].startswith("#") else '"', match[0])


def _statements(code: str) -> Iterator[tuple[int, list[str]]]:
    """The number of the first line, and the lines, of each statement."""
    depth, lines = 0, list[str]()
    for number, line in enumerate(code.split("\n"), 1):
        lines.append(line)
        depth += sum(line.count(each) for each in "([{") - sum(line.count(each) for each in ")]}")
        if depth <= 0 and not line.rstrip().endswith("\\"):
            yield number - len(lines) + 1, lines
            depth, lines = 0, []


def sites_of(path: str, text: str) -> list[Site]:
    """The changes that can be made to a file, in its order."""
    found = []
    source = text.split("\n")
    declared: int | None = None  # how far the head of a block of declarations is indented
    for first, lines in _statements(_TEXTS.sub(_blank, text)):
        head = lines[0]
        if not head.strip():
            continue
        indent = len(head) - len(head.lstrip())
        if declared is not None and indent > declared:
            continue
        declared = indent if _DECLARATIONS.match(head) else None
        if _NO_CODE.match(head) or declared is not None:
            continue
        begin = head.index("=") + 1 if head.lstrip().startswith("cdef") else 0
        for number, line in enumerate(lines, first):
            before = source[number - 1]
            changes = _changes(line, before, begin if number == first else 0)
            if len(lines) == 1:
                changes += _whole(line, before)
            found += [Site(path, number, before, after) for after in changes]
    return found


def _changes(line: str, before: str, begin: int) -> list[str]:
    """What the line becomes by the change of one operator or value, from a position on."""
    found = []
    for pattern, other in ((_OPERATOR, _OTHER), (_VALUE, _VALUES)):
        for match in pattern.finditer(line, begin):
            found.append(before[: match.start()] + other[match[0]] + before[match.end() :])
    return found


def _whole(line: str, before: str) -> list[str]:
    """What a statement of one line becomes by a change of all of it."""
    found = []
    if (condition := _IF.fullmatch(line)) is not None:
        end = condition.end(2)
        opposite = f"not ({before[condition.start(2) : end]})"
        found.append(before[: condition.start(2)] + opposite + before[end:])
    if (call := _CALL.fullmatch(line)) is not None:
        found.append(f"{call[1]}pass")
    return found


def all_sites(root: Path) -> dict[str, list[Site]]:
    """Package -> the changes that can be made to its files, in a stable order."""
    return {
        package: [
            site
            for path in sorted((root / "broker" / package).rglob("*.pyx"))
            for site in sites_of(path.relative_to(root).as_posix(), path.read_text())
        ]
        for package in PACKAGES
    }


def shared_sites(root: Path, other: Path) -> dict[str, list[Site]]:
    """The same, of those changes that can also be made to another checkout, in the same package and
    once in each, in an order that is the same for the other."""
    found = [_by_text(all_sites(each)) for each in (root, other)]
    keys = sorted(key for key, sites in found[0].items() if len(sites) == 1)
    shared = [key for key in keys if len(found[1].get(key, ())) == 1]
    return {
        package: [found[0][key][0] for key in shared if key[0] == package] for package in PACKAGES
    }


def _by_text(found: dict[str, list[Site]]) -> dict[tuple[str, str, str], list[Site]]:
    """By package and both texts, wherever the lines are."""
    sorted_in: dict[tuple[str, str, str], list[Site]] = {}
    for package, sites in found.items():
        for site in sites:
            key = (package, site.before.strip(), site.after.strip())
            sorted_in.setdefault(key, []).append(site)
    return sorted_in


def shuffled(found: dict[str, list[Site]], seed: int) -> dict[str, list[Site]]:
    """The same changes in the order in which a sample takes them."""
    chance = random.Random(seed)
    return {package: chance.sample(sites, len(sites)) for package, sites in found.items()}


def shares(count: int) -> dict[str, int]:
    """Package -> how many changes of a sample are of it."""
    parts = len(PACKAGES)
    return {package: (count + parts - 1 - at) // parts for at, package in enumerate(PACKAGES)}

"""What the tidy tests read out of our sources about classes and functions, also compiled ones."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.tidy.sources import PACKAGES, ROOT, files, module, relative

_CLASS = re.compile(r"^(?:cdef\s+|cpdef\s+)?class\s+(\w+)\s*(?:\(([^)]*)\))?\s*:", re.MULTILINE)
_FUNCTION = re.compile(
    r"^([ ]*)(?:async\s+)?(?:cdef|cpdef|def)\s+(?!class\b|struct\b|enum\b|union\b|extern\b)"
    r"[^=\n#]*?(\w+)\s*\(",
    re.MULTILINE,
)
_ATTRIBUTE = re.compile(
    r"^    cdef\s+(?:public\s+|readonly\s+)?(?!class\b)[\w.*\[\], ]+?[ *]"
    r"(\w+(?:\s*,\s*\w+)*)\s*(?:#.*)?$",
    re.MULTILINE,
)
_CALL = re.compile(r"\bself\.(\w+)\(")
_TEXTS = re.compile(r'"""(?:.|\n)*?"""|\'\'\'(?:.|\n)*?\'\'\'')


@dataclass
class Function:
    """`where` is path and line; `parameters` are without `self` or `cls`."""

    name: str
    where: str
    lines: int
    parameters: int


@dataclass
class Class:
    """`members`: methods and attributes that its own files declare. `calls`: method -> line of each
    call on `self`, of a compiled class only."""

    name: str
    module: str
    where: str
    bases: list[str]
    members: set[str] = field(default_factory=set)
    calls: dict[str, int] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.module}.{self.name}"


def _without_texts(text: str) -> str:
    """Without docstrings and comments; the lines stay."""
    text = _TEXTS.sub(lambda match: "\n" * match[0].count("\n"), text)
    return re.sub(r"#[^\n]*", "", text)


# -- functions ---------------------------------------------------------------------------------


@cache
def functions() -> list[Function]:
    """Every function of the product."""
    found: list[Function] = []
    for path in files(".py", ".pyx", under=PACKAGES):
        found += _python(path) if path.suffix == ".py" else _compiled(path)
    return found


def _python(path: Path) -> Iterator[Function]:
    tree = ast.parse(path.read_text())
    for scope in ast.walk(tree):
        for node in ast.iter_child_nodes(scope):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                given = node.args
                names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
                bound = isinstance(scope, ast.ClassDef) and names[:1] in (["self"], ["cls"])
                owner = f"{scope.name}." if isinstance(scope, ast.ClassDef) else ""
                assert node.end_lineno is not None
                yield Function(
                    owner + node.name,
                    f"{relative(path)}:{node.lineno}",
                    node.end_lineno - node.lineno + 1,
                    len(names) - bound,
                )


def _compiled(path: Path) -> Iterator[Function]:
    text = path.read_text()
    code = _without_texts(text)
    lines = code.splitlines()
    owner = ""
    starts = {match.start(): match for match in _FUNCTION.finditer(code)}
    classes = {match.start(): match[1] for match in _CLASS.finditer(code)}
    for start in sorted(starts.keys() | classes.keys()):
        if start in classes:
            owner = classes[start]
            continue
        match = starts[start]
        indent = len(match[1])
        first = code.count("\n", 0, start)
        end = _closing(code, match.end() - 1)
        if ":" not in code[end:].split("\n", 1)[0]:
            continue  # a declaration
        last = code.count("\n", 0, end)
        for number in range(last + 1, len(lines)):
            if lines[number].strip():
                if len(lines[number]) - len(lines[number].lstrip()) <= indent:
                    break
                last = number
        parameters = _split(code[match.end() : end])
        bound = bool(indent) and parameters[:1] in (["self"], ["cls"])
        yield Function(
            (f"{owner}." if indent else "") + match[2],
            f"{relative(path)}:{first + 1}",
            last - first + 1,
            len([each for each in parameters if each not in ("*", "/")]) - bound,
        )


def _closing(code: str, at: int) -> int:
    """The position of the bracket that closes the one at a position."""
    depth = 0
    for place in range(at, len(code)):
        depth += code[place] in "([{"
        depth -= code[place] in ")]}"
        if depth == 0:
            return place
    return len(code)


def _split(text: str) -> list[str]:
    """The parameters in a list of them."""
    found, depth = [""], 0
    for letter in text:
        depth += letter in "([{"
        depth -= letter in ")]}"
        if letter == "," and depth == 0:
            found.append("")
        else:
            found[-1] += letter
    return [each.strip() for each in found if each.strip()]


# -- classes -----------------------------------------------------------------------------------


@cache
def classes() -> dict[str, Class]:
    """Every class of the product by module and name."""
    found: dict[str, Class] = {}
    for path in files(".py", under=PACKAGES):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                bases = [ast.unparse(base).split("[")[0] for base in node.bases]
                one = Class(node.name, module(path), f"{relative(path)}:{node.lineno}", bases)
                found.setdefault(one.key, one)
    for path in files(".pyx", under=PACKAGES):
        for one in _compiled_classes(path):
            found[one.key] = one
    return found


def _compiled_classes(path: Path) -> list[Class]:
    header = path.with_suffix(".pxd")
    declared = header.read_text() if header.exists() else ""
    return own_calls(module(path), path.read_text(), declared, relative(path))


def own_calls(place: str, source: str, header: str = "", where: str = "") -> list[Class]:
    """The classes of a compiled module, from its source and its declarations."""
    declared = {name: body for name, _, body, _ in _bodies(header)}
    found = []
    for name, bases, body, line in _bodies(source):
        one = Class(name, place, f"{where}:{line}", _split(bases))
        for text in (body, declared.get(name, "")):
            one.members |= {match[2] for match in _FUNCTION.finditer(text)}
            for match in _ATTRIBUTE.finditer(text):
                one.members |= {each.strip() for each in match[1].split(",")}
            one.members |= set(re.findall(r"^    (\w+)\s*=", text, re.MULTILINE))
        for match in _CALL.finditer(body):
            one.calls.setdefault(match[1], line + body.count("\n", 0, match.start()))
        found.append(one)
    return found


def _bodies(text: str) -> Iterator[tuple[str, str, str, int]]:
    """(name, bases, text, line) of each class in a `.pyx` or `.pxd` file."""
    code = _without_texts(text)
    for match in _CLASS.finditer(code):
        rest = code[match.start() :]
        ends = re.search(r"\n(?=[^\s])", rest)
        yield (
            match[1],
            match[2] or "",
            rest[: ends.start()] if ends else rest,
            (code.count("\n", 0, match.start()) + 1),
        )


def bases_of(one: Class) -> list[Class]:
    """Its base classes that are our own."""
    found = []
    for base in one.bases:
        name = base.rpartition(".")[2]
        candidates = [each for each in _by_name().get(name, []) if each is not one]
        near = [each for each in candidates if each.module == one.module]
        if not near and len(candidates) > 1:
            imported = _imported_from(one, name)
            near = [each for each in candidates if each.module == imported]
        found += (near or candidates)[:1]
    return found


@cache
def _by_name() -> dict[str, list[Class]]:
    found: dict[str, list[Class]] = {}
    for one in classes().values():
        found.setdefault(one.name, []).append(one)
    return found


def _imported_from(one: Class, name: str) -> str:
    path = ROOT / one.where.rpartition(":")[0]
    line = re.search(
        rf"^from\s+([\w.]+)\s+c?import\s+(?:\([^)]*\b{name}\b|[^\n]*\b{name}\b)",
        path.read_text(),
        re.MULTILINE,
    )
    return line[1] if line else ""


def depth(one: Class, contracts: frozenset[str]) -> int:
    """How many classes of ours it stands on, itself included, above the first contract. What others
    wrote (`object`, Django's views, `asyncio.Protocol`) counts as `object`."""
    if one.key in contracts:
        return 0
    return 1 + max((depth(base, contracts) for base in bases_of(one)), default=0)


def declares(one: Class, name: str) -> bool:
    """Whether a compiled class or a base of it has this member."""
    return name in one.members or any(declares(base, name) for base in bases_of(one))

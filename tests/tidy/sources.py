"""The project's own files, and what the tidy tests read out of them."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("broker", "management", "api", "frontend")
# Written by others and vendored, or built.
NOT_OURS = ("frontend/static/vendor", "build")

_IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+c?import\s+(.+)|c?import\s+(.+))$", re.MULTILINE)
_DEFINITION = re.compile(
    r"(?:\b(?:def|class|struct|enum|union)\s+|^\s*cp?def\s+(?:[^=\n(]*?[ *])?)(\w+)\s*[(:=\n]"
    r"|^\s*(\w+)\s*(?::[^=\n]+)?=[^=]"
    r"|^\s*(?:self|config)\.(\w+)\s*(?::[^=\n]+)?="
    r"|^\s*(?:cdef\s+)?(?:public\s+|readonly\s+)*[\w*\[\]. ]+?[ *](\w+)\s*(?:#.*)?$"
    r"|\b(\w+)\s*\([^()\n]*\)\s*(?:except|noexcept|nogil)"
    r"|^\s*(?:static\s+|inline\s+)+[\w* ]+?[ *](\w+)\s*\(",
    re.MULTILINE,
)


def files(*suffixes: str, under: tuple[str, ...] = (*PACKAGES, "tests", "tools")) -> list[Path]:
    """Our files with these suffixes, in a stable order."""
    found = []
    for folder in under:
        for path in sorted((ROOT / folder).rglob("*")):
            name = relative(path)
            if path.suffix in suffixes and path.is_file() and not name.startswith(NOT_OURS):
                found.append(path)
    return found


def documents() -> list[Path]:
    """Every page of documentation."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def module(path: Path) -> str:
    """The import name of a source file."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


def imports(path: Path, for_types: bool = True) -> Iterator[tuple[str, int]]:
    """The absolute names a file imports or cimports, at any depth of it, and the line; with or
    without what only the type checker imports."""
    text = path.read_text()
    if path.suffix == ".py":
        tree = ast.parse(text)
        yield from _python_imports(path, tree if for_types else _Executed().visit(tree))
        return
    for match in _IMPORT.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if match[1] is None:
            for name in match[3].split(","):
                yield name.split(" as ")[0].strip(), line
        else:
            base = _absolute(path, match[1])
            for name in match[2].split("#")[0].strip(" ()\\").split(","):
                yield f"{base}.{name.split(' as ')[0].strip(' ()')}".rstrip("."), line


class _Executed(ast.NodeTransformer):
    """Removes what stands under `if TYPE_CHECKING`."""

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return node.orelse
        return self.generic_visit(node)


def _python_imports(path: Path, tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(path, "." * node.level + (node.module or ""))
            for alias in node.names:
                yield f"{base}.{alias.name}", node.lineno


def _absolute(path: Path, name: str) -> str:
    dots = len(name) - len(name.lstrip("."))
    if dots == 0:
        return name
    package = module(path).split(".")
    if path.stem != "__init__":
        package.pop()
    package = package[: len(package) - dots + 1]
    return ".".join([*package, *filter(None, name.lstrip(".").split("."))])


def definitions() -> set[str]:
    """Every name that our code defines: functions, classes, attributes, C structs."""
    names: set[str] = set()
    for path in files(".py", ".pyx", ".pxd", ".h", ".js"):
        for match in _DEFINITION.finditer(path.read_text()):
            names.update(group for group in match.groups() if group)
    return names


@functools.cache
def classes() -> dict[str, list[tuple[frozenset[str], Path]]]:
    """The bases of each class, and the file that it is in; a name may be used several times."""
    found: dict[str, list[tuple[frozenset[str], Path]]] = {}
    for path in files(".py", ".pyx", ".pxd"):
        for head in re.finditer(r"^(?:cdef )?class (\w+)(?:\(([^)]*)\))?:", path.read_text(), re.M):
            bases = frozenset(base.strip() for base in (head[2] or "").split(","))
            found.setdefault(head[1], []).append((bases, path))
    return found


def members(owner: str) -> set[str]:
    """What is defined in the files that have the class `owner`, and in those of its bases."""
    found: set[str] = set()
    wanted, seen = [owner], set()
    while wanted:
        name = wanted.pop()
        seen.add(name)
        for bases, path in classes().get(name, ()):
            for each in _DEFINITION.finditer(path.read_text()):
                found.update(group for group in each.groups() if group)
            wanted += bases - seen
    return found

"""The static files as they are served: grouped, so that a first visit asks for few, and compressed.

The sources are many small files. `write` puts three kinds of files below a directory of the web
process, large ones with a `.gz` beside them:

- style sheets as `STYLES` groups them, one after the other;
- `js/base.js`: the modules that pages share and what every page does. Each module keeps a scope of
  its own, and the file exports what its modules export. A page's module imports from it;
- everything else as it is.

No line of a script is changed but those with `import` and `export`, so what a browser's tools show
is what was written. All is served below `/static/<build>/`, where the build is a hash over all
sources, and every answer may be cached for ever.
"""

import gzip
import hashlib
import re
from pathlib import Path

STYLES = {
    "css/site.css": (
        "css/tokens.css",
        "css/base.css",
        "css/frame.css",
        "css/components.css",
        "css/chart.css",
        "css/table.css",
        "css/palette.css",
        "css/keys.css",
        "css/messages.css",
        "css/history.css",
        "css/policy.css",
        "css/console.css",
        "css/reports.css",
        "vendor/uPlot.min.css",
    ),
    "css/sign-in.css": ("css/tokens.css", "css/base.css", "css/login.css"),
}
"""Style sheets that are served, and their sources in the order of the cascade."""

SHARED = "js/components"
BASE = "js/base.js"

_IMPORT = re.compile(r'import (?:\{ ([^}]*) \} from )?"([^"]+)";')
_EXPORTED = re.compile(r"export ((?:async )?function\*?|class|const|let) (\w+)(?!\w)")
_EXPORT_LIST = re.compile(r"export \{ ([^}]*) \};")

_PACKABLE = {".css", ".js", ".mjs", ".svg", ".json"}
_SMALL = 1024
"""Files with fewer bytes fit into one packet anyway."""


class BuildError(ValueError):
    """A script that cannot be grouped; the text says which and why."""


def build_name(root: Path) -> str:
    """Ten hexadecimal digits that change when any file below `root` changes; `empty` if none.

    The way the files are grouped counts as well.
    """
    digest = hashlib.sha256(Path(__file__).read_bytes())
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    for path in paths:
        digest.update(path.relative_to(root).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:10] if paths else "empty"


def write(root: Path, target: Path) -> Path:
    """Let `target` hold what is served of the sources in `root`, and nothing else; returns it.

    What is there already stays as it is, so that a restart on a full disk needs no space. Raises
    BuildError where a script has an import or export of another form than this project writes, and
    OSError.
    """
    wanted = files(root)
    for name, content in list(wanted.items()):
        if Path(name).suffix in _PACKABLE and len(content) >= _SMALL:
            wanted[f"{name}.gz"] = gzip.compress(content, 9, mtime=0)
    for path in target.rglob("*"):
        if path.is_file() and path.relative_to(target).as_posix() not in wanted:
            path.unlink()
    for name, content in wanted.items():
        path = target / name
        if not path.is_file() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return target


def files(root: Path) -> dict[str, bytes]:
    """Name and content of every file that is served."""
    grouped = {name for names in STYLES.values() for name in names}
    served = {
        name: b"\n".join((root / part).read_bytes() for part in parts)
        for name, parts in STYLES.items()
    }
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        name = path.relative_to(root).as_posix()
        if name in grouped or name.startswith(SHARED) or name == BASE:
            continue
        content = path.read_bytes()
        is_module = name.startswith("js/")
        served[name] = _page_module(name, content.decode()).encode() if is_module else content
    served[BASE] = _base_module(root).encode()
    return served


def _page_module(name: str, text: str) -> str:
    """A page's module: what it imports from a shared module comes from the base."""
    lines = []
    for line in text.split("\n"):
        if line.startswith(("import ", "export ")):
            found = _IMPORT.fullmatch(line)
            if found is None:
                raise BuildError(f"{name}: {line!r} is none of the known forms of import")
            if found[2].startswith("./components/"):
                line = f'import {{ {found[1]} }} from "./base.js";'
        lines.append(line)
    return "\n".join(lines)


def _base_module(root: Path) -> str:
    """The shared modules in the order of their imports, then the base; each in its own scope."""
    texts = {path.name: path.read_text() for path in sorted((root / SHARED).glob("*.js"))}
    scopes: dict[str, str] = {}
    exported: dict[str, str] = {}

    def add(name: str, above: tuple[str, ...] = ()) -> None:
        if name in above:
            raise BuildError(f"{SHARED}/{name} imports itself by way of {', '.join(above)}")
        if name in scopes:
            return
        if name not in texts:
            raise BuildError(f"{SHARED}/{above[-1]} imports {name}, which is not there")
        for line in texts[name].split("\n"):
            found = _IMPORT.fullmatch(line)
            if found is not None:
                add(found[2].rpartition("/")[2], (*above, name))
        scopes[name], names = _scope(f"{SHARED}/{name}", texts[name])
        for one in names:
            if one in exported:
                raise BuildError(f"{SHARED}: {name} and {exported[one]} both export {one}")
            exported[one] = name

    for name in texts:
        add(name)
    scopes["base.js"], _ = _scope(BASE, (root / BASE).read_text())
    return "\n".join(scopes.values())


def _scope(name: str, text: str) -> tuple[str, list[str]]:
    """A module as a function that runs at once, and the names it exports."""
    lines: list[str] = []
    exported: list[str] = []
    for line in text.split("\n"):
        if line.startswith("import "):
            # The functions around it are in one scope, where every exported name is known.
            found = _IMPORT.fullmatch(line)
            if found is None or (found[1] and " as " in found[1]):
                raise BuildError(f"{name}: {line!r} is none of the known forms of import")
            line = ""
        elif line.startswith("export "):
            single, several = _EXPORTED.match(line), _EXPORT_LIST.fullmatch(line)
            if single is not None:
                exported.append(single[2])
                line = line.removeprefix("export ")
            elif several is not None:
                exported += several[1].split(", ")
                line = ""
            else:
                raise BuildError(f"{name}: {line!r} is none of the known forms of export")
        lines.append(line)
    head = f"export const {{ {', '.join(exported)} }} = " if exported else ""
    give = f"return {{ {', '.join(exported)} }};\n" if exported else ""
    body = "\n".join(lines)
    return f"// {name}\n{head}(() => {{\n{body}\n{give}}})();\n", exported

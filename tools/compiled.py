"""The compiled modules: which there are, what each depends on, and whether it is up to date.

Standard library only, because the set-up asks before anything is installed. A module is up to
date when the digest of its sources and flags equals the one noted when it was built
(`build/compiled.json`); file times, which a checkout or a copy changes, play no part.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MANIFEST = ROOT / "build" / "compiled.json"
CHECKED = "-DLEVERET_BOUNDSCHECK=1"
SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))

_CIMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+)?cimport\s+(.+)$", re.MULTILINE)
_EXTERN = re.compile(r"^\s*cdef\s+extern\s+from\s+[\"']([^\"']+)[\"']", re.MULTILINE)
_INCLUDE = re.compile(r"^\s*include\s+[\"']([^\"']+)[\"']", re.MULTILINE)
_C_INCLUDE = re.compile(r"^\s*#\s*include\s+\"([^\"]+)\"", re.MULTILINE)


FOLDERS = ("broker", "tests")

SHARED_UTILITIES = "broker.kernel.shared_utilities"
"""The module of the functions that Cython would else write into each module: its Python calls,
errors and imports. An eighth of the compiler's time for most modules, and of their size."""

EACH_MESSAGE = (
    "broker.kernel.buffer",
    "broker.kernel.ledger",
    "broker.kernel.turn",
    "broker.server.plain",
    "broker.server.sockets",
    "broker.wire.channel",
    "broker.wire.confirms",
    "broker.wire.deliveries",
    "broker.wire.fan_out",
    "broker.wire.frame_parser",
    "broker.wire.output",
    "broker.wire.publish_run",
    "broker.wire.route_memo",
    "broker.wire.sizes",
    "broker.wire.upload",
    "broker.wire.uses",
    "broker.queues.capacity",
    "broker.queues.classic",
    "broker.queues.consumers",
    "broker.queues.counters",
    "broker.queues.unstored",
    "broker.store.log.queue_store",
    "broker.store.log.read_buffer",
    "broker.store.log.segments",
)
"""Modules that each message passes, also one that reaches no disk. They are compiled with -O2: with
FAST for these and for HOT, S1 took 1.08 times the time a message."""

HOT = {
    "what a turn of the event loop and a socket's bytes pass": (
        "broker.kernel.checksum",
        "broker.kernel.clock",
        "broker.kernel.coalescing",
        "broker.kernel.moderation",
        "broker.kernel.octets",
        "broker.server.ciphertext",
        "broker.serving.websocket_frames",
    ),
    "frames that carry messages, acknowledgements and confirms": (
        "broker.wire.argument_lists",
        "broker.wire.held_confirms",
        "broker.wire.replies",
    ),
    "where a message goes": (
        "broker.fields.codec",
        "broker.kernel.headers",
        "broker.routing.topic_edges",
        "broker.routing.topic_tree",
    ),
    "a message in its queue": (
        "broker.queues.ack_confirms",
        "broker.queues.dead_letters",
        "broker.queues.declared",
        "broker.queues.latencies",
        "broker.queues.limits",
        "broker.queues.stream",
        "broker.queues.stream_reader",
    ),
    "a message in its log and its way to the disk": (
        "broker.store.bodies.body_index",
        "broker.store.bodies.reader",
        "broker.store.bodies.store",
        "broker.store.commit.persister",
        "broker.store.commit.tail_memory",
        "broker.store.files.io_thread",
        "broker.store.files.record_scan",
        "broker.store.files.spans",
        "broker.store.index.bloom",
        "broker.store.index.ram_index",
        "broker.store.log.priority_store",
        "broker.store.log.recovery",
        "broker.store.log.requeued",
        "broker.store.log.shared_refs",
        "broker.store.streams.cursor",
        "broker.store.streams.store",
    ),
    "a message that passes a feature, a link or a shovel": (
        "broker.client.core",
        "broker.client.flight",
        "broker.features.dedup.id_log",
        "broker.features.delayed.holding",
        "broker.features.delayed.schedule",
        "broker.features.history.book",
        "broker.features.history.recording",
        "broker.features.stream_index.reading",
        "broker.features.transfer.hand_over",
        "broker.features.transfer.moving",
        "broker.features.usage.accounts",
        "broker.store.keys.unsealed",
    ),
}
"""Other modules that many messages or turns pass, or that a start reads all messages with, by what
they are for. They are compiled with FAST."""

# An integer that comes from Python is taken by Python's own function, not by a copy of it for each
# C type, which is 300 lines.
SMALL = ("-DCYTHON_USE_PYLONG_INTERNALS=0",)

FAST = (
    "-O1",
    # What -O2 adds for functions that call each other.
    "-finline-functions",
    "-finline-small-functions",
    "-fpartial-inlining",
    "-fipa-cp",
    # What takes a seventh of the compiler's time and makes the code no faster.
    "-fno-tree-dominator-opts",
    "-fno-tree-pta",
    "-fno-dse",
    "-fno-dce",
    "-fno-split-wide-types",
    *SMALL,
)
"""Half of the compiler's time for -O2; a message that is stored costs the same with it
(`make bench`)."""

QUICK = (
    "-Og",  # two thirds of the time of -O1
    # These make the code smaller again, so that they save the compiler more than they cost.
    "-finline-functions-called-once",
    "-fssa-phiopt",
    "-ftree-dse",
    "-ftree-sra",
    *SMALL,
)
"""How the other modules are compiled. Not -O0: its code is twice as large, which takes the
assembler as long as -Og takes the compiler to make it small."""


def modules(folders: Iterable[str] = FOLDERS) -> list[Path]:
    """The `.pyx` files of the project, in a stable order."""
    return sorted(
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*.pyx")
        if "build" not in path.relative_to(ROOT).parts
    )


def dotted(source: Path) -> str:
    """The import name of a `.pyx` file."""
    return ".".join(source.relative_to(ROOT).with_suffix("").parts)


def binary(source: Path) -> Path:
    """Where the compiled module of a `.pyx` file lies when it is built in place."""
    return source.with_name(source.stem + SUFFIX)


def sources(source: Path) -> list[Path]:
    """A `.pyx` file and everything of ours that it is compiled from, sorted."""
    found: set[Path] = set()
    waiting = [source]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        waiting.extend(_references(path))
    return sorted(found)


def digest(source: Path, flags: tuple[str, ...]) -> str:
    """The digest that a built module is known by: its sources, flags, directives, its Python, and
    the Cython that is locked, because all modules call functions of one (SHARED_UTILITIES)."""
    state = hashlib.sha256(_locked_compiler())
    chosen = directives(CHECKED in flags)
    for part in (*flags, json.dumps(chosen, sort_keys=True), SUFFIX):
        state.update(part.encode() + b"\0")
    for path in sources(source):
        state.update(str(path.relative_to(ROOT)).encode() + b"\0")
        state.update(path.read_bytes() + b"\0")
    return state.hexdigest()


@cache
def _locked_compiler() -> bytes:
    try:
        return (ROOT / "requirements-build.lock").read_bytes()
    except FileNotFoundError:  # an sdist
        return b""


def directives(checked: bool) -> dict[str, Any]:
    """Cython's directives for all modules; `checked`: those that find a wrong index."""
    return {
        "language_level": 3,
        "boundscheck": checked,
        "wraparound": False,
        "initializedcheck": checked,
        "cdivision": True,
        # Plain method descriptors, a fifth less C code than function objects written by Cython. The
        # signature is a text then, which `inspect` and stubtest read.
        "binding": False,
        "embedsignature": True,
        "embedsignature.format": "clinic",
        # No compiled object is pickled; two functions of each class for it are a third of the
        # C code.
        "auto_pickle": False,
        "emit_code_comments": False,
    }


def flags(source: Path | None = None) -> tuple[str, ...]:
    """Compiler flags that change the compiled code, of a module or of most of them.

    x86-64-v2 is every 64-bit x86 processor since 2009. LEVERET_BOUNDSCHECK=1 makes the build
    that finds a wrong index; C code sees it as a macro of the same name.
    """
    chosen = [*_optimizing(source), "-fno-strict-aliasing"]
    if os.uname().machine == "x86_64":
        chosen.append("-march=x86-64-v2")
    if checked():
        chosen.append(CHECKED)
    if plants():
        chosen.append("-DLEVERET_PLANTED=1")
    return tuple(chosen)


def _optimizing(source: Path | None) -> tuple[str, ...]:
    if plants():
        return QUICK
    if source is None or dotted(source) in EACH_MESSAGE:
        return ("-O2",)
    return FAST if any(dotted(source) in names for names in HOT.values()) else QUICK


def checked() -> bool:
    """Whether bounds checks were asked for."""
    return os.environ.get("LEVERET_BOUNDSCHECK", "0") not in ("", "0")


def plants() -> bool:
    """Whether the modules with planted faults are built, for the crash tests: see `planting`."""
    return "LEVERET_PLANTED" in os.environ


def planting() -> list[Path]:
    """The `.pyx` files of the broker in which faults can be planted."""
    header = ROOT / "broker" / "store" / "files" / "planted.h"
    return [source for source in modules(["broker"]) if header in sources(source)]


def stale() -> list[Path]:
    """The `.pyx` files whose compiled module is missing or was built from something else.

    A module that was built with other flags (bounds checks, say) counts as built: flags are a
    choice of the person who builds, and only sources can be stale.
    """
    built = manifest()
    return [
        source
        for source in modules()
        if not binary(source).exists()
        or built.get(dotted(source), {}).get("sources") != digest(source, ())
    ]


def to_build(folders: Iterable[str] = FOLDERS) -> list[Path]:
    """The `.pyx` files that a build with the present flags has to compile."""
    built = manifest()
    return [
        source
        for source in modules(folders)
        if not binary(source).exists() or built.get(dotted(source)) != entry(source)
    ]


def entry(source: Path) -> dict[str, str]:
    """What the manifest notes about one module."""
    return {"sources": digest(source, ()), "build": digest(source, flags(source))}


def manifest() -> dict[str, dict[str, str]]:
    """What was built, by import name; empty when nothing was."""
    try:
        noted = json.loads(MANIFEST.read_text())
    except (OSError, ValueError):
        return {}
    return noted if isinstance(noted, dict) else {}


def note(built: dict[str, dict[str, str]]) -> None:
    """Write the manifest. What was built from a source that is gone is removed: Python would still
    import it."""
    known = {dotted(source) for source in modules()}
    for name in built.keys() - known:
        binary(ROOT.joinpath(*name.split(".")).with_suffix(".pyx")).unlink(missing_ok=True)
    MANIFEST.parent.mkdir(parents=True, exist_ok=True)
    temporary = MANIFEST.with_suffix(f".{os.getpid()}")
    kept = {name: value for name, value in sorted(built.items()) if name in known}
    temporary.write_text(json.dumps(kept, indent=1) + "\n")
    temporary.replace(MANIFEST)


def _references(path: Path) -> Iterator[Path]:
    text = path.read_text(errors="replace")
    if path.suffix in (".h", ".c"):
        names = [match[1] for match in _C_INCLUDE.finditer(text)]
    else:
        for match in _CIMPORT.finditer(text):
            yield from _cimported(path, match[1], match[2])
        names = [match[1] for match in _EXTERN.finditer(text)]
        names += [match[1] for match in _INCLUDE.finditer(text)]
        if path.suffix == ".pyx" and path.with_suffix(".pxd").exists():
            yield path.with_suffix(".pxd")
    for name in names:
        for candidate in (path.parent / name, ROOT / name):
            if candidate.is_file():
                yield candidate.resolve()
                break


def _cimported(path: Path, module: str | None, names: str) -> Iterator[Path]:
    wanted = [name.split(" as ")[0].strip(" ()\\") for name in names.split(",")]
    bases = [module] if module else wanted
    for base in bases:
        folder = ROOT
        if base.startswith("."):
            dots = len(base) - len(base.lstrip("."))
            folder = path.parents[dots - 1]
        place = folder.joinpath(*[part for part in base.split(".") if part])
        for candidate in (
            place.with_suffix(".pxd"),
            place / "__init__.pxd",
            *(place / f"{name}.pxd" for name in wanted if name.isidentifier()),
        ):
            if candidate.is_file():
                yield candidate


if __name__ == "__main__":
    if sys.argv[1:2] == ["--list"]:
        print("\n".join(dotted(item) for item in to_build(sys.argv[2:] or FOLDERS)))
        sys.exit(0)
    late = stale()
    for item in late:
        print(f"{item.relative_to(ROOT)}: not built since it was last changed; run `make build`")
    sys.exit(1 if late else 0)

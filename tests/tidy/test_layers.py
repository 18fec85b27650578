"""The packages of the broker lie in layers, and imports go down only (ARCHITECTURE.md).

A package imports from the layers below its own, never from another package of its own layer. The
web app and the other processes reach the broker only over the control socket.
"""

from __future__ import annotations

import graphlib
from pathlib import Path

import pytest

from tests.tidy.sources import files, imports, module, relative

# From the lowest up. Packages of one row do not import each other.
LAYERS = (
    ("broker.kernel", "broker.process", "broker.schema"),
    ("broker.settings",),
    ("broker.fields", "broker.serving", "broker.access", "broker.routing"),
    ("broker.store.files",),
    ("broker.store.commit", "broker.store.index"),
    ("broker.store.bodies", "broker.store.directory", "broker.store.keys"),
    ("broker.store.log",),
    ("broker.store.streams",),
    ("broker.wire",),
    ("broker.queues", "broker.client"),
    ("broker.vhosts", "broker.stats"),
    ("broker.features", "broker.definitions"),
    ("broker.server",),
)
PACKAGES = tuple(package for layer in LAYERS for package in layer)
ABOVE = ("management", "api", "frontend")
# What the broker and the other processes both import.
# A backup works on the data directory itself, also where no broker runs.
COPIED = (
    "broker.settings.quantities",
    "broker.store.files.disk",
    "broker.store.directory.snapshot",
)
# What reads the messages of a data directory where no broker serves it.
READ = (
    "broker.store.bodies.file",
    "broker.store.directory.journal",
    "broker.store.files.record_scan",
    "broker.vhosts.changes",
)
# What uploads a segment reads it first, and never one that is damaged.
CHECKED = ("broker.kernel.checksum", "broker.store.files.record_scan")
# What shows the definitions of a data directory that no broker serves.
OFFLINE = ("broker.server.offline",)
ON_FILES = {
    "management.ctl.definitions": OFFLINE,
    "management.backup": COPIED,
    # Files of reports come into their place in the same way, also where no broker runs.
    "management.reports.placement": ("broker.store.directory.steps",),
    "management.reports.segments": READ,
    "management.tiers.work": CHECKED,
}
SHARED = (
    "broker.process",
    "broker.schema",
    "broker.serving",
    "broker.settings.bounds",
    "broker.settings.config",
    # The client side of the wire runs in processes of its own.
    "broker.client",
    # The table of the usage feed's columns, which imports nothing.
    "broker.features.usage.records",
)

# Only the server knows that there is an event loop, a socket, a wall clock.
SERVER_ONLY = ("asyncio", "socket", "selectors", "select", "ssl", "socketserver", "uvloop")
MAY_IMPORT = {
    ("broker/serving/certificates.py", "ssl"): "makes the contexts that both processes serve with",
    ("broker/serving/origins.py", "socket"): "asks what this machine is called",
    ("broker/client/aio.py", "asyncio"): "runs the client in perf and bridges, not in the broker",
    ("broker/client/aio.py", "socket"): "likewise",
    ("broker/client/aio.py", "ssl"): "likewise",
    ("broker/client/tls.py", "socket"): "likewise",
    ("broker/client/tls.py", "ssl"): "likewise",
    ("broker/store/commit/persister.pyx", "select"): "waits for its threads at the end",
}
NEVER_IN_BROKER = ("django", "channels", "ninja", "pyspark", "management", "api", "frontend")


def is_in(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def package_of(name: str) -> str | None:
    return next((package for package in PACKAGES if is_in(name, package)), None)


def layer_of(package: str) -> int:
    return next(number for number, layer in enumerate(LAYERS) if package in layer)


BROKER = files(".py", ".pyx", ".pxd", under=("broker",))
OTHERS = files(".py", under=ABOVE)


@pytest.mark.parametrize("path", BROKER, ids=relative)
def test_each_module_lies_in_a_package_of_a_layer(path: Path) -> None:
    name = module(path)
    assert name in ("broker", "broker.store") or package_of(name) is not None, (
        f"{name} is in no row of LAYERS; put it into a package that is"
    )


def test_imports_are_from_lower_layers_and_the_own_package_only() -> None:
    wrong = []
    for path in BROKER:
        package = package_of(module(path))
        for name, line in imports(path):
            target = package_of(name)
            if package is None or target is None or target == package:
                continue
            if layer_of(target) >= layer_of(package):
                wrong.append(f"{relative(path)}:{line} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_no_modules_import_each_other_in_a_circle() -> None:
    """At run time: imports for the type checker alone are left out."""
    modules = {module(path) for path in (*BROKER, *OTHERS)}
    graph: dict[str, set[str]] = {name: set() for name in modules}
    for path in (*BROKER, *OTHERS):
        name = module(path)
        for imported, _ in imports(path, for_types=False):
            parts = imported.split(".")
            found = next(
                (
                    prefix
                    for end in range(len(parts), 0, -1)
                    if (prefix := ".".join(parts[:end])) in modules
                ),
                name,
            )
            # A package runs before its modules, whatever they import.
            if not is_in(name, found):
                graph[name].add(found)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" imports ".join(error.args[1][::-1]))


def test_it_knows_no_event_loop_or_socket_below_the_server() -> None:
    wrong = [
        f"{relative(path)}:{line} imports {name}"
        for path in BROKER
        for name, line in imports(path)
        if not relative(path).startswith("broker/server/")
        and any(is_in(name, word) for word in SERVER_ONLY)
        and (relative(path), name.split(".")[0]) not in MAY_IMPORT
    ]
    assert not wrong, "\n".join(wrong)


def test_it_knows_nothing_of_the_web_in_the_broker() -> None:
    wrong = [
        f"{relative(path)}:{line} imports {name}"
        for path in BROKER
        for name, line in imports(path)
        if any(is_in(name, word) for word in NEVER_IN_BROKER)
    ]
    assert not wrong, "\n".join(wrong)


def test_it_reaches_the_broker_only_over_the_control_socket() -> None:
    wrong = [
        f"{relative(path)}:{line} imports {name}"
        for path in OTHERS
        for name, line in imports(path)
        if is_in(name, "broker")
        and name != "broker"
        and not any(is_in(name, package) for package in SHARED)
        and not any(is_in(name, package) for package in ON_FILES.get(module(path), ()))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "name", ["broker.settings.config", "broker.settings.quantities", "broker.process.lifetime"]
)
def test_it_needs_only_the_standard_library_for_its_settings(name: str) -> None:
    import sys

    path = next(path for path in BROKER if module(path) == name)
    for imported, line in imports(path):
        top = imported.split(".")[0]
        assert top in sys.stdlib_module_names or top == "broker", f"{name}:{line} {imported}"


def test_it_sees_a_cimport_that_goes_up(tmp_path: object) -> None:
    """The test of the test: reading imports finds each way of writing one."""
    from tests.tidy import sources

    path = sources.ROOT / "broker" / "store" / "made_up.pyx"
    text = "from broker.wire.frames cimport Frame, Other\ncimport broker.server.tcp\n"
    found = []
    for match in sources._IMPORT.finditer(text):
        found.append(match[1] or match[3])
    assert found == ["broker.wire.frames", "broker.server.tcp"]
    assert sources._absolute(path, "..wire") == "broker.wire"
    assert sources._absolute(path, ".disk") == "broker.store.disk"

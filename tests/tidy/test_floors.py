"""The house has floors, and imports go down only (ARCHITECTURE.md).

A room may import rooms of its own floor and of the floors below. What lies above the process
border reaches the broker only over the control socket.
"""

from __future__ import annotations

import pytest

from tests.tidy.sources import files, imports, module, relative

FLOORS = (
    (
        "broker.kernel",
        "broker.errors",
        "broker.addresses",
        "broker.quantities",
        "broker.config",
        "broker.config_sources",
        "broker.certificates",
        "broker.columns",
        "broker.arguments",
        "broker.bounds",
        "broker.policy_keys",
        "broker.contracts",
        "broker.control_schema",
        "broker.garbage",
        "broker.lifetime",
        "broker.log_limit",
        "broker.logs",
        "broker.origins",
        "broker.reloading",
        "broker.sight",
        "broker.times",
        "broker.tls_handshakes",
        "broker.websocket_intake",
        "broker.websocket_room",
    ),
    ("broker.store",),
    ("broker.wire", "broker.routing", "broker.queues", "broker.client"),
    (
        "broker.vhosts",
        "broker.access",
        "broker.policies",
        "broker.settings_files",
        "broker.stats",
    ),
    ("broker.features", "broker.definitions"),
    ("broker.server",),
)
ABOVE = ("management", "api", "frontend")
# What both sides of the process border know.
# A backup works on the data directory itself, also where no broker runs.
COPIED = ("broker.quantities", "broker.store.disk", "broker.store.snapshot")
# What reads the messages of a data directory where no broker serves it.
READ = (
    "broker.store.body_file",
    "broker.store.journal",
    "broker.store.record_scan",
    "broker.vhosts.changes",
)
ON_FILES = {"management.backup": COPIED, "management.reports.segments": READ}
SHARED = (
    "broker.addresses",
    "broker.arguments",
    "broker.bounds",
    "broker.certificates",
    "broker.columns",
    # The client side of the wire runs in processes of its own.
    "broker.client",
    "broker.config",
    "broker.control_schema",
    # The table of the usage feed's columns, which imports nothing.
    "broker.features.usage.records",
    "broker.garbage",
    "broker.lifetime",
    "broker.logs",
    "broker.origins",
    "broker.sight",
    "broker.reloading",
    "broker.tls_handshakes",
    "broker.websocket_intake",
    "broker.websocket_room",
)

# Only the server knows that there is an event loop, a socket, a wall clock.
SERVER_ONLY = ("asyncio", "socket", "selectors", "select", "ssl", "socketserver", "uvloop")
MAY_IMPORT = {
    ("broker/certificates.py", "ssl"): "makes the contexts that both processes serve with",
    ("broker/origins.py", "socket"): "asks what this machine is called",
    ("broker/client/aio.py", "asyncio"): "runs the client in perf and bridges, not in the broker",
    ("broker/client/aio.py", "socket"): "likewise",
    ("broker/client/aio.py", "ssl"): "likewise",
    ("broker/store/persister.pyx", "select"): "waits for its threads when the loop has ended",
}
NEVER_IN_BROKER = ("django", "channels", "ninja", "pyspark", "management", "api", "frontend")


def in_room(name: str, room: str) -> bool:
    return name == room or name.startswith(room + ".")


def floor_of(name: str) -> int | None:
    for number, rooms in enumerate(FLOORS):
        if any(in_room(name, room) for room in rooms):
            return number
    return None


BROKER = files(".py", ".pyx", ".pxd", under=("broker",))
UPSTAIRS = files(".py", under=ABOVE)


@pytest.mark.parametrize("path", BROKER, ids=relative)
def test_it_stands_on_a_floor(path: object) -> None:
    name = module(path)  # type: ignore[arg-type]
    assert name == "broker" or floor_of(name) is not None, (
        f"{name} is in no row of FLOORS; give it a floor"
    )


def test_it_imports_downwards_only() -> None:
    wrong = []
    for path in BROKER:
        floor = floor_of(module(path))
        for name, line in imports(path):
            target = floor_of(name)
            if floor is not None and target is not None and target > floor:
                wrong.append(f"{relative(path)}:{line} imports {name}, {target - floor} floors up")
    assert not wrong, "\n".join(wrong)


def test_it_knows_no_event_loop_or_socket_below_the_server() -> None:
    wrong = [
        f"{relative(path)}:{line} imports {name}"
        for path in BROKER
        for name, line in imports(path)
        if not relative(path).startswith("broker/server/")
        and any(in_room(name, word) for word in SERVER_ONLY)
        and (relative(path), name.split(".")[0]) not in MAY_IMPORT
    ]
    assert not wrong, "\n".join(wrong)


def test_it_knows_nothing_of_the_web_in_the_broker() -> None:
    wrong = [
        f"{relative(path)}:{line} imports {name}"
        for path in BROKER
        for name, line in imports(path)
        if any(in_room(name, word) for word in NEVER_IN_BROKER)
    ]
    assert not wrong, "\n".join(wrong)


def test_it_reaches_the_broker_only_over_the_control_socket() -> None:
    wrong = [
        f"{relative(path)}:{line} imports {name}"
        for path in UPSTAIRS
        for name, line in imports(path)
        if in_room(name, "broker")
        and name != "broker"
        and not any(in_room(name, room) for room in SHARED)
        and not any(in_room(name, room) for room in ON_FILES.get(module(path), ()))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", ["broker.config", "broker.quantities", "broker.lifetime"])
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

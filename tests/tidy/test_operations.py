"""What a client may change in a vhost is one operation for all protocols, and asks for permission.

`broker/vhosts/defining.py` carries it out, `broker/access/rights.py` permits it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.tidy.sources import ROOT, files, relative

OPERATIONS = {
    "declare_queue": "check_declare",
    "declare_exchange": "check_declare",
    "delete_queue": "check",
    "delete_exchange": "check",
    "bind": "check_binding",
    "unbind": "check_binding",
    "purged": "check",
}
"""Operation -> the method of `Rights` that must be asked before, by that name or a wrapper's."""

UNASKED = {
    "broker/definitions/topology.py": "the import of definitions asks for all of them first",
    "broker/server/control/health_verbs.py": "the aliveness test asks for its own queue",
    "broker/server/control/tracing_verbs.py": "traces and their queues belong to administrators",
    "broker/vhosts/defining.py": "an auto-delete queue ends with its last consumer",
}
"""Files that carry operations out on behalf of the broker, and why without a permission."""


def called(node: ast.AST) -> Iterator[tuple[str, int]]:
    """The names of what is called in a function, or could be, and the lines."""
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute):
            yield each.attr, each.lineno
        elif isinstance(each, ast.Name):
            yield each.id, each.lineno


def carried_out(
    path_text: str,
) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, str, int]]:
    """(function, operation, line) of every operation that is called, innermost functions left to
    the outer ones."""
    for top in ast.parse(path_text).body:
        nodes = top.body if isinstance(top, ast.ClassDef) else [top]
        for function in nodes:
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for each in ast.walk(function):
                if isinstance(each, ast.Call):
                    wanted = called(each.func)
                    for name, line in wanted:
                        if name in OPERATIONS and function.name != name:
                            yield function, name, line


def unasked(text: str) -> tuple[int, list[str]]:
    """How many operations a file carries out, and those before which no permission is asked."""
    found, wrong = 0, []
    for function, operation, line in carried_out(text):
        if operation in ("bind", "unbind") and "vhost" not in ast.unparse(function):
            continue  # a socket's
        found += 1
        before = {name.lstrip("_") for name, at in called(function) if at <= line}
        if OPERATIONS[operation] not in before:
            wrong.append(f"{line}: {operation} without {OPERATIONS[operation]}")
    return found, wrong


def test_no_protocol_changes_a_vhost_without_asking_for_the_permission() -> None:
    total, missing = 0, []
    for path in files(".py", under=("broker/wire", "broker/server")):
        if relative(path) not in UNASKED:
            found, wrong = unasked(path.read_text())
            total += found
            missing += [f"{relative(path)}:{one}" for one in wrong]
    assert not missing, "\n".join(missing)
    # Each of them over AMQP and over the control socket; both kinds of a binding are one there.
    assert total >= 2 * len(OPERATIONS) - 2, f"only {total}: the test looks in the wrong place"


def test_it_sees_an_operation_without_its_permission() -> None:
    text = """
def queue_delete(connection, name):
    connection.check("configure", "queue", name)
    connection.vhost.delete_queue(name)

def exchange_delete(connection, name):
    connection.vhost.delete_exchange(name)
    connection.check("configure", "exchange", name)
"""
    assert unasked(text) == (2, ["7: delete_exchange without check"])


def test_only_the_listed_files_carry_operations_out_for_the_broker_itself() -> None:
    for name in UNASKED:
        assert list(carried_out((ROOT / name).read_text())), f"{name} carries none out any more"

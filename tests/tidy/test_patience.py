"""Tests wait long enough for a machine that is busy with something else."""

from __future__ import annotations

import ast

from tests.appliance import ROOT

REQUESTS = {"get", "post", "put", "patch", "delete", "request", "stream", "Client", "AsyncClient"}


def impatient(source: str) -> list[int]:
    """Lines that use httpx with its own timeout, which is 5 s."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).removeprefix("httpx.") in REQUESTS
        and ast.unparse(node.func).startswith("httpx.")
        and "timeout" not in {keyword.arg for keyword in node.keywords}
    ]


def test_requests_over_http_say_how_long_they_wait() -> None:
    found = {
        str(path.relative_to(ROOT)): lines
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if (lines := impatient(path.read_text()))
    }
    assert found == {}


def test_it_finds_one_that_does_not() -> None:
    assert impatient("import httpx\nhttpx.get('/', auth=None)\nhttpx.Client(timeout=60)\n") == [2]

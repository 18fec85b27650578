"""The types that a form offers are those that the broker says it has."""

from __future__ import annotations

from typing import Any

import pytest

from frontend import types


@pytest.mark.parametrize(
    ("kind", "there", "offered"),
    [
        ("queue", ["classic", "quorum"], ["classic", "quorum"]),
        ("queue", ["stream", "quorum", "classic", "log"], ["classic", "quorum", "stream", "log"]),
        ("exchange", ["direct", "topic"], ["topic", "direct"]),
    ],
)
async def test_a_form_offers_what_the_broker_has(
    monkeypatch: pytest.MonkeyPatch, kind: str, there: list[str], offered: list[str]
) -> None:
    async def ask(_request: Any, verb: str) -> Any:
        assert verb == "types"
        return {kind: there}

    monkeypatch.setattr(types, "ask", ask)
    found = await types.types_of(None, kind)  # type: ignore[arg-type]
    assert [name for name, _ in found] == offered
    assert all(text.startswith(name) for name, text in found)

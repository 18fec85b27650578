"""Large JSON bodies are decoded in steps, and mean what they mean when they are decoded at once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api import json_body
from api.json_body import BadBody, parse, parse_in_steps
from broker.serving.json_texts import long_texts

HARD = st.text(alphabet=st.sampled_from('"\\/u\0\n\té€\U0001f600a0dD8}{,[]:'))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text() | HARD,
    lambda below: (
        st.lists(below, max_size=4) | st.dictionaries(st.text() | HARD, below, max_size=4)
    ),
    max_leaves=12,
)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of a few octets count as long ones."""
    monkeypatch.setattr(json_body, "LONG", 5)
    monkeypatch.setattr(json_body, "PIECE", 13)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("escaped", [True, False])
async def test_what_is_decoded_in_steps_is_the_same(escaped: bool) -> None:
    bodies: list[bytes] = []

    @settings(max_examples=400, deadline=None)
    @given(st.dictionaries(st.text() | HARD, VALUES, max_size=5))
    def collect(value: dict[str, Any]) -> None:
        bodies.append(json.dumps(value, ensure_ascii=escaped).encode("utf-8", "replace"))

    collect()
    for body in bodies:
        assert await parse_in_steps(body) == parse(body), body


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    "body",
    [
        b'{"a": "0123456789\\x"}',
        b'{"a": "01234567890123456789\\ud83d"}',
        b'{"a": "0123456789\xff0123456789"}',
        b'{"a": "0123456789\n0123456789"}',
        b'{"a": "0123456789012345678901234567890',
        b'{"a": "0123456789", "b": 0123456789}',
        b'["0123456789"]',
        b'"0123456789"',
    ],
    ids=range(8),
)
async def test_what_is_refused_at_once_is_refused_in_steps(body: bytes) -> None:
    with pytest.raises(BadBody):
        parse(body)
    with pytest.raises(BadBody):
        await parse_in_steps(body)


@pytest.mark.usefixtures("short")
async def test_a_long_key_is_a_key() -> None:
    body = b'{"0123456789": "0123456789", "a": {"9876543210": ["9876543210"]}}'
    assert await parse_in_steps(body) == json.loads(body)


def test_it_finds_texts_by_their_length() -> None:
    document = rb'{"a": "12345", "long \" one": "\\", "\\\\": "123456"}'
    found = [document[first:end] for first, end in long_texts(document, 6)]
    assert found == [rb"long \" one", b"123456"]
    assert long_texts(document, 100) == []
    assert long_texts(b'"never ends', 3) == []
    assert long_texts(b"", 1) == []


async def test_others_go_on_while_a_long_text_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 0

    async def sleep(_: float) -> None:
        nonlocal steps
        steps += 1

    monkeypatch.setattr(json_body.asyncio, "sleep", sleep)
    body = json.dumps({"payload": "\0" * (1 << 20), "routing_key": "k"}).encode()
    found = await parse_in_steps(body)
    assert found == {"payload": "\0" * (1 << 20), "routing_key": "k"}
    assert steps >= len(body) // json_body.PIECE

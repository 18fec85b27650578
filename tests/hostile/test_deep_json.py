"""JSON that is nested deep is refused before anything recurses over it, and what Python can raise
nowhere is a line of the log at the limit of recursion, too."""

from __future__ import annotations

import gc
import json
import logging
import random
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from api.json_body import BadBody
from api.json_body import parse as parse_body
from broker.definitions.document import Fault
from broker.definitions.document import parse as parse_definitions
from broker.process import logs, unraisable
from broker.serving.json_nesting import TooDeep, TooWide, end_of_value, is_nested_over

LEVELS = 4


def levels_of(value: Any) -> int:
    """The levels of lists and objects."""
    if isinstance(value, dict):
        return 1 + max(map(levels_of, value.values()), default=0)
    return 1 + max(map(levels_of, value), default=0) if isinstance(value, list) else 0


def any_value(chance: random.Random, most: int) -> Any:
    """With brackets, quotes and letters of every width in its texts."""
    text = "".join(chance.choices('[]{}",\\ aé€😀', k=chance.randrange(6)))
    kind = chance.randrange(4) if most else 3
    if kind == 0:
        return [any_value(chance, most - 1) for _ in range(chance.randrange(3))]
    if kind <= 2:
        return {f"{text}{number}": any_value(chance, most - 1) for number in range(kind)}
    return chance.choice((text, 7, None, 1.5))


@pytest.mark.parametrize("seed", range(20))
def test_levels_are_those_of_the_decoded_value(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(100):
        value = any_value(chance, 2 * LEVELS)
        text = json.dumps(value, ensure_ascii=chance.random() < 0.5)
        expected = levels_of(value) > LEVELS
        assert is_nested_over(text, LEVELS) == expected, text
        assert is_nested_over(text.encode(), LEVELS) == expected, text
        before = ("[[[[[[" + chance.choice("xé€😀")).encode()
        for behind in (b"", b", [[[[[[", b"]}", b" \n}"):
            whole = before + text.encode() + behind
            if expected:
                with pytest.raises(TooDeep):
                    end_of_value(whole, len(before), LEVELS, 1_000_000)
            else:
                end = end_of_value(memoryview(whole), len(before), LEVELS, 1_000_000)
                assert whole[len(before) : end] == text.encode(), behind


def values_in(value: Any) -> int:
    """What lists and objects hold, where each but the first of them takes a comma."""
    held = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(held, list):
        return 0
    return max(0, len(held) - 1) + sum(map(values_in, held))


@pytest.mark.parametrize("seed", range(5))
def test_a_value_is_refused_from_one_more_comma_on(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(100):
        value = any_value(chance, 2 * LEVELS)
        text, count = json.dumps(value).encode(), values_in(value)
        assert end_of_value(text, 0, 100, count) == len(text)
        if count:
            with pytest.raises(TooWide):
                end_of_value(text, 0, 100, count - 1)


@pytest.mark.parametrize("text", [b"", b'"', b'"\\', b"\\", b'{"a', b"[", b"[1, {"])
def test_a_value_that_is_cut_off_ends_with_the_text(text: bytes) -> None:
    assert end_of_value(text, 0, LEVELS, 10) == len(text)


@pytest.mark.parametrize(("text", "end"), [(b"]", 0), (b",1", 0), (b'"a""b"', 3), (b"tru}", 3)])
def test_a_value_ends_where_it_can_have_no_more(text: bytes, end: int) -> None:
    assert end_of_value(text, 0, LEVELS, 10) == end


@pytest.mark.parametrize("text", ["", '"', '"\\', "\\", "]]]]", "7, [[[[[[", '"[[[[[[', "7 [[[[[["])
def test_what_is_cut_or_no_json_is_not_nested(text: str) -> None:
    assert not is_nested_over(text, LEVELS)
    assert not is_nested_over(text.encode(), LEVELS)


@pytest.fixture
def walks() -> Iterator[list[str]]:
    """What a function says that the garbage collector calls at each of its walks, of which there
    are as many as can be."""
    told: list[str] = []

    def walked(phase: str, about: dict[str, int]) -> None:
        told.append(phase.format_map(about))

    before = gc.get_threshold()
    gc.callbacks.append(walked)
    gc.set_threshold(1, 1_000, 1_000)
    yield told
    gc.set_threshold(*before)
    gc.callbacks.remove(walked)


def test_no_walk_of_the_collector_fails_in_a_request_body_or_in_definitions(
    walks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)
    for depth in range(900, 1_000):
        text = b'{"a": ' + b"[" * depth + b"]" * depth + b"}"
        with pytest.raises(BadBody, match=r"^too_deep: the body is nested over 64 levels$"):
            parse_body(text)
        with pytest.raises(Fault, match=r"a\[0\] is nested over 64 levels$"):
            list(parse_definitions(text))
    assert walks
    assert lost == []


class Loud:
    """Its end fails, where Python cannot raise anything."""

    ended = 0

    def __del__(self) -> None:
        Loud.ended += 1
        raise ValueError("loud")


def test_the_hook_logs_at_any_depth_and_leaves_the_limit_as_it_was(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    recent = logs.Recent()
    limit = sys.getrecursionlimit()
    deepest = 0

    def fall(depth: int) -> None:
        nonlocal deepest
        deepest = depth
        Loud()
        fall(depth + 1)

    log = logging.getLogger("leveret")
    monkeypatch.setattr(log, "propagate", False)
    monkeypatch.setattr(log, "handlers", [recent])
    monkeypatch.setattr(sys, "unraisablehook", unraisable.hook)
    unraisable.tell_by(logs._unraisable)
    Loud.ended = 0
    with pytest.raises(RecursionError):
        fall(1)
    texts = [entry.text for entry in recent.entries]
    assert len(texts) >= deepest - 1, "the deepest one may have had no room for its beginning"
    assert len(texts) >= Loud.ended
    assert any("RecursionError ignored" in text for text in texts), "none was at the limit"
    assert sys.getrecursionlimit() == limit
    assert capfd.readouterr().err == ""


def test_what_the_log_does_not_take_python_writes(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fails(_error: object) -> None:
        raise OSError("no log")

    monkeypatch.setattr(sys, "unraisablehook", unraisable.hook)
    unraisable.tell_by(fails)
    try:
        Loud()
    finally:
        unraisable.tell_by(logs._unraisable)
    assert "ValueError: loud" in capfd.readouterr().err

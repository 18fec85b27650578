"""A stream that cannot be read holds up no other one in the index of its vhost."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

import pytest

from broker.features.stream_index import vhost_index
from broker.features.stream_index.feeding import Full
from broker.features.stream_index.vhost_index import VHostIndex


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), Full("no place")])
def test_what_fails_of_one_stream_is_told_when_the_others_are_indexed(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    parts: list[Any] = [
        SimpleNamespace(stream=SimpleNamespace(incarnation=number), position=8, end=100)
        for number in range(3)
    ]
    told: list[str] = []

    def feed(series: Any, part: Any, most: int) -> int:
        if part is parts[0]:
            raise error
        told.append(f"stream {part.stream.incarnation}")
        return 100

    monkeypatch.setattr(vhost_index, "feed", feed)
    index = VHostIndex.__new__(VHostIndex)
    index._noted = 0
    index._uploads = SimpleNamespace(note=lambda uploads: None)  # type: ignore[assignment]
    index._note_keys = lambda streams, gone: None  # type: ignore[method-assign]
    index.series = SimpleNamespace(  # type: ignore[assignment]
        damaged=set(),
        compact_next=lambda: None,
        flush=lambda: told.append("flush"),
        expire=lambda held: told.append("expire"),
        delete_expired=lambda: told.append("delete"),
    )
    work: Any = SimpleNamespace(uploads=(), gone=set(), streams=(), changes=1, parts=parts, held={})
    with pytest.raises(type(error)):
        index._go_on(work)
    assert told == ["stream 1", "stream 2", "flush", "expire", "delete"]

"""The short form of the store's state machine; `make crash` plays more of it."""

from __future__ import annotations

import pytest

from tests.crash.machine import run


@pytest.mark.parametrize("backend", ["ram", "leveldb"])
def test_the_store_is_plain_lists_over_stops_and_kills(backend: str) -> None:
    run(backend, examples=30, steps=40)

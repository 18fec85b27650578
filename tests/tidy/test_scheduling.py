"""The order of a parallel run of the tests."""

from __future__ import annotations

import pytest

from tests import scheduling
from tests.appliance import ROOT


@pytest.mark.parametrize("room", scheduling.FIRST)
def test_it_names_only_rooms_that_exist(room: str) -> None:
    assert any((ROOT / room).glob("test_*.py"))


def test_what_takes_long_begins_first() -> None:
    ids = [
        "tests/tidy/test_a.py::test",
        "tests/api/test_b.py::test",
        "tests/web/test_c.py::test[/x]",
    ]
    assert sorted(ids, key=scheduling.turn_of) == [ids[2], ids[1], ids[0]]

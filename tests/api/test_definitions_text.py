"""The text of a definitions document, written in pieces of any size."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from management.definitions_text import DefinitionsText

SECTIONS = ["users", "vhosts", "queues", "bindings"]
HEAD = {"rabbit_version": "3.10.8", "product_name": "Leveret"}


@given(
    st.lists(st.tuples(st.sampled_from(SECTIONS), st.dictionaries(st.text(), st.text()))),
    st.lists(st.integers(0, 20)),
    st.booleans(),
)
def test_the_pieces_are_the_document_and_no_shorter_text_is_json(
    rows: list[tuple[str, dict[str, str]]], cuts: list[int], in_lines: bool
) -> None:
    rows.sort(key=lambda pair: SECTIONS.index(pair[0]))
    document: dict[str, Any] = dict(HEAD)
    for name in SECTIONS:
        document[name] = [row for section, row in rows if section == name]
    text = DefinitionsText(HEAD, SECTIONS, in_lines=in_lines)
    written = text.begin()
    for start, end in pairwise(sorted({0, len(rows), *(min(cut, len(rows)) for cut in cuts)})):
        written += text.add(rows[start:end])
        with pytest.raises(ValueError, match=r"."):
            json.loads(written)
    written += text.end()
    assert json.loads(written) == document
    assert list(json.loads(written)) == list(document)
    lines = written.decode().split("\n")
    of_rows = sum(line.startswith("{") for line in lines[1:])
    assert of_rows == len(rows) if in_lines else len(lines) == 1

"""The frame of the store's rows: what it prints, and one row at its smallest size."""

from __future__ import annotations

from pathlib import Path

from tests.bench.store import index, queues
from tests.bench.store.__main__ import ROWS
from tests.bench.store.frame import Bench, Figure


def test_every_row_has_a_name_of_its_own_and_says_what_it_proves() -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)
    assert all(row.proves for row in ROWS)


def test_a_figure_stands_beside_its_target_and_its_ceiling() -> None:
    line = Figure("what", "7 ms", "<= 5 ms", "a sync 3 ms", False).line("T-X1")
    assert " ".join(line.split()) == "T-X1 what 7 ms MISSED <= 5 ms a sync 3 ms"


def test_the_start_row_measures_both_ways_of_recovery(tmp_path: Path) -> None:
    figures = list(queues.boot(Bench(tmp_path, quick=True)))
    assert [figure.what.partition(" ")[2] for figure in figures] == [
        "sealed segments with summaries",
        "torn tail of 7 MiB, scanned record by record",
    ]
    assert not list(tmp_path.iterdir())


def test_the_rows_of_the_index_have_their_verdicts(tmp_path: Path) -> None:
    figures = list(index.filter_value(Bench(tmp_path, quick=True)))
    assert [figure.met for figure in figures] == [True, True, None, None, True, True, None]
    assert not list(tmp_path.iterdir())

"""Whose bytes are in quarantine."""

from __future__ import annotations

from pathlib import Path

from broker.store.commit.quarantine import SHOWN, Quarantine


def test_a_queue_with_many_damaged_stretches_is_looked_for_once(tmp_path: Path) -> None:
    quarantine = Quarantine(str(tmp_path / "quarantine"))
    names = {7: ("/", "orders"), 8: ("/", "bills")}
    asked: list[int] = []

    def name_of(incarnation: int) -> tuple[str, str]:
        asked.append(incarnation)
        return names.get(incarnation, ("", ""))

    quarantine.name_of = name_of
    for incarnation in (7, 7, 7, 8, 9):
        quarantine.take(incarnation, 1, 8 * len(quarantine.entries), b"damaged", 7)
    assert [entry["queue"] for entry in quarantine.entries] == ["orders"] * 3 + ["bills", ""]
    assert asked == [7, 8, 9]
    names[9] = ("/", "known by now")
    assert quarantine.take(9, 1, 100, b"damaged", 7)["queue"] == "known by now"


def test_a_stretch_that_is_found_again_counts_once(tmp_path: Path) -> None:
    directory = str(tmp_path / "quarantine")
    quarantine = Quarantine(directory)
    for _ in range(3):
        quarantine.take(7, 1, 8, b"damaged", 7)
    quarantine.take(7, 2, 8, b"damaged", 7)
    assert quarantine.count == len(quarantine.entries) == 2
    for _ in range(SHOWN):
        quarantine.take(8, 1, quarantine.count, b"damaged", 7)
    # It is not shown any more.
    quarantine.take(7, 1, 8, b"damaged", 7)
    assert quarantine.count == SHOWN + 2
    following = Quarantine(directory)
    following.load()
    following.take(7, 1, 8, b"damaged", 7)
    assert following.count == SHOWN + 2

"""Whose bytes are in quarantine."""

from __future__ import annotations

from pathlib import Path

from broker.store.quarantine import Quarantine


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

"""Rows T-C1 and T-C2: what a confirm costs when it waits for the disk, for the ack, or for the ack
with nothing stored."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from tests.bench import confirm_modes
from tests.bench.store.frame import Bench, Figure, Row


def modes(bench: Bench) -> Iterator[Figure]:
    """T-C1, in the order of the paper's table. Ratios are to the mode `write` of the same cell."""
    broker = bench.broker()
    rounds, seconds = (1, 0.5) if bench.quick else (3, 2.0)
    for count in (1, 2) if bench.quick else confirm_modes.QUEUES:
        for window in (100,) if bench.quick else confirm_modes.WINDOWS:
            sync = bench.sync_ms() if window == 1 else 0.0
            rates: dict[str, list[float]] = {mode: [] for mode in confirm_modes.MODES}
            for _ in range(rounds):
                for mode in confirm_modes.MODES:
                    rates[mode].append(confirm_modes.rate(broker, count, window, mode, seconds))
            write, ack, lean = (statistics.median(rates[mode]) for mode in confirm_modes.MODES)
            wanted = confirm_modes.PAPER[count]
            compared = window == 100
            yield Figure(
                f"{count} queues, window {window}: write, ack / write, ack-lean / write",
                f"{write:,.0f}/s, {ack / write:.2f}, {lean / write:.2f}",
                f">= {wanted[0]} / {wanted[1]}" if compared else "",
                f"sync {sync:.2f} ms" if sync else "",
                ack / write >= wanted[0] and lean / write >= wanted[1] if compared else None,
            )


def backlog(bench: Bench) -> Iterator[Figure]:
    """T-C2."""
    text = confirm_modes.backlog(bench.broker())
    grown = float(text.split()[1])
    yield Figure(
        f"{confirm_modes.BACKLOG:,} messages whose publisher waits for consumers",
        f"{grown:.2f} B/message",
        "<= 1 B/message",
        "",
        grown <= 1,
    )


ROWS = (
    Row("T-C1", "what a confirm costs by its mode", modes),
    Row("T-C2", "a backlog of origins costs no memory", backlog),
)

"""Prints figures as plain tables, each ratio beside its budget."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

from tests.bench.scenarios import SCENARIOS, Scenario

COLUMNS = (
    ("scenario", 10),
    ("broker", 9),
    ("messages/s", 11),
    ("CPU µs/msg", 11),
    ("p50 ms", 9),
    ("p99 ms", 9),
    ("RSS MiB", 8),
    ("budget", 26),
)
WIRE_BYTES = {"S1": 73, "S3": 1081, "S4": 100060}
"""Bytes one message has on the wire in a publish of the generator, for the bare relay."""
WINDOW_SHARE = 0.85
"""Of a window in the time of two fdatasyncs: at least so much has to be confirmed."""


def progress(text: str) -> None:
    """One line on stderr that is overwritten, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def processor() -> str:
    """Name and number of processors."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} x {names[0]}" if names else "unknown processor"


def failures(figures: dict[str, Any]) -> list[str]:
    """Scenario and broker of every measurement that could not be completed."""
    rows = figures.get("scenarios", {}).items()
    return [f"{name} {who}" for name, row in rows for who in row if "failed" in row[who]]


def render(figures: dict[str, Any]) -> str:
    """The whole report as text."""
    versions = ", ".join(f"{name} {text}" for name, text in figures["versions"].items())
    sync = figures["sync"]
    lines = [
        f"{figures['date']}; {figures['machine']}; {versions}",
        f"one append and fdatasync: p50 {sync['p50_ms']:.2f} ms, p99 {sync['p99_ms']:.2f} ms, "
        f"{sync['cpu_us']:.0f} µs of CPU",
        "a bare relay (read, write): "
        + ", ".join(
            f"{figures['relay_seconds_per_byte'] * size * 1e6:.2f} µs for a message of {name}"
            for name, size in WIRE_BYTES.items()
        ),
    ]
    lines += [f"{name}: not run ({reason})" for name, reason in figures["absent"].items()]
    if "memory" in figures:
        return "\n".join([*lines, "", *_memory_table(figures["memory"])])
    if figures.get("rounds"):
        lines.append(f"medians of {figures['rounds']} rounds of {figures['seconds']:g} s each")
    lines += ["", " ".join(name.ljust(width) for name, width in COLUMNS).rstrip()]
    table = {scenario.name: scenario for scenario in SCENARIOS}
    for name, row in figures.get("scenarios", {}).items():
        lines += _scenario(table[name], row)
    return "\n".join(lines)


def _scenario(scenario: Scenario, row: dict[str, Any]) -> list[str]:
    lines = []
    for who in ("Leveret", "before", "RabbitMQ"):
        if who not in row:
            if who == "before":
                continue
            lines.append(_line(scenario.name, who, "not run"))
            continue
        result = row[who]
        if "failed" in result:
            reason = result["failed"].splitlines()[-1]
            lines.append(_line(scenario.name, who, "FAILED") + f" {reason}")
            continue
        latency = result["latency_us"] if result["latency_us"]["p50"] else result["confirm_us"]
        verdict = _verdict(scenario, row) if who == "Leveret" else ""
        lines.append(
            _line(
                scenario.name,
                who,
                f"{result['rate']:,.0f}",
                f"{result['cpu_us_per_message']:.3f}",
                f"{latency['p50'] / 1000:.3f}",
                f"{latency['p99'] / 1000:.3f}",
                f"{result['rss'] / 2**20:.0f}",
                verdict,
            )
        )
    lines.append(f"           {scenario.text}")
    return lines


def _verdict(scenario: Scenario, row: dict[str, Any]) -> str:
    result, parts = row["Leveret"], []
    if scenario.budget is not None:
        parts.append(_against(result["cpu_us_per_message"], scenario.budget, "µs"))
    before = row.get("before")
    if before and "failed" not in before:
        pairs = sorted(
            one / max(other, 1e-9)
            for one, other in zip(result["cpu_us_all"], before["cpu_us_all"], strict=True)
        )
        ratio = statistics.median(pairs)
        parts.append(f"{ratio:.2f} ({pairs[0]:.2f} to {pairs[-1]:.2f}) of before")
    peer = row.get("RabbitMQ")
    if scenario.share is not None and peer and "failed" not in peer:
        ratio = peer["cpu_us_per_message"] / max(result["cpu_us_per_message"], 1e-9)
        wanted = 1 / scenario.share
        parts.append(f"1/{ratio:.1f} {'<=' if ratio >= wanted else '> '} 1/{wanted:.0f}")
    if scenario.name == "idle":
        parts.append(_against(result["latency_us"]["p50"] / 1000, 0.06, "ms p50"))
    if scenario.confirm_latency:
        limit = 2 * result["sync_ms"]
        parts.append(_against(result["confirm_us"]["p50"] / 1000, limit, "ms p50"))
    if scenario.window:
        pair_ms = 2 * result["sync_ms"]
        share = result["rate"] * pair_ms / 1000 / scenario.window
        sign = ">=" if share >= WINDOW_SHARE else "< "
        parts.append(f"{share:.2f} {sign} {WINDOW_SHARE} of {scenario.window} in {pair_ms:.2f} ms")
    return ", ".join(parts)


def _against(value: float, budget: float, unit: str) -> str:
    return f"{value:.3g} {'<=' if value <= budget else '> '} {budget:.3g} {unit}"


def _line(*cells: str) -> str:
    widths = (width for _, width in COLUMNS)
    return " ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=False)).rstrip()


MEMORY_ROWS = (
    ("connection_bytes", "idle connection with one channel, KiB", 1024, 12.0),
    ("queue_bytes", "declared empty durable queue, KiB", 1024, 1.0),
    ("message_bytes", "queued persistent message of 16 B, bytes", 1, 0.05),
    ("ten_priorities_message_bytes", "the same in 10 priorities, bytes", 1, 0.05),
    ("all_priorities_message_bytes", "the same in 256 priorities, bytes", 1, 0.05),
    ("queues_per_second", "durable queues declared per second", 1, None),
    ("bindings_per_second", "transient bindings per second", 1, -40000.0),
    ("durable_bindings_per_second", "durable bindings per second", 1, -5000.0),
    ("restart_seconds", "kill -9 to first delivery, 10 million queued, s", 1, 5.0),
    ("drained_per_second", "queued messages drained per second after it", 1, None),
)
"""Key, text, divisor, budget (at most; negative: at least)."""


def _memory_table(memory: dict[str, Any]) -> list[str]:
    lines = [f"{'':47}" + "".join(f"{name:>12}" for name in memory) + "      budget"]
    for key, text, divisor, budget in MEMORY_ROWS:
        cells = ""
        for figures in memory.values():
            cells += f"{figures[key] / divisor:12,.2f}" if key in figures else f"{'-':>12}"
        wanted = "" if budget is None else f"{'<=' if budget > 0 else '>='} {abs(budget):,g}"
        lines.append(f"{text:47}{cells}      {wanted}")
    return lines

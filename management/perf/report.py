"""What a run prints: a line a second, and a summary as text or JSON."""

from __future__ import annotations

import json
from typing import Any

from broker.client.measuring import Histogram

PERCENTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999))


def latencies(histogram: Histogram) -> dict[str, float] | None:
    """Percentiles, mean and maximum in microseconds; None without any time."""
    if not histogram.count:
        return None
    found = {name: histogram.percentile(part) / 1000 for name, part in PERCENTILES}
    return {**found, "max": histogram.highest / 1000, "mean": round(histogram.mean / 1000, 3)}


def summary(facts: dict[str, Any], as_json: bool) -> str:
    """The end of a run. Facts without a value are left out of the text."""
    if as_json:
        return json.dumps(facts)
    lines = ["Summary:"]
    for name, value in facts.items():
        label = name.replace("_", " ")
        if isinstance(value, dict):
            parts = "  ".join(f"{part} {number:,.1f}" for part, number in value.items())
            lines.append(f"  {label}: {parts}")
        elif isinstance(value, float):
            lines.append(f"  {label}: {value:,.1f}")
        elif value is not None:
            lines.append(
                f"  {label}: {value:,}" if isinstance(value, int) else f"  {label}: {value}"
            )
    return "\n".join(lines)

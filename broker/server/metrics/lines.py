"""Lines of Prometheus' text format 0.0.4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def escape(value: str) -> str:
    """A label value as the text format wants it; what is no UTF-8 becomes U+FFFD."""
    value = value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def line(name: str, value: float, labels: Mapping[str, str] | None = None) -> str:
    """One sample."""
    text = ",".join(f'{key}="{escape(label)}"' for key, label in (labels or {}).items())
    number = int(value) if float(value).is_integer() else value
    return f"rabbitmq_{name}{{{text}}} {number}\n" if text else f"rabbitmq_{name} {number}\n"


def head(name: str, kind: str, text: str) -> str:
    """The two comment lines before the samples of a metric."""
    return f"# TYPE rabbitmq_{name} {kind}\n# HELP rabbitmq_{name} {text}\n"


def metric(
    name: str, kind: str, text: str, value: float, labels: Mapping[str, str] | None = None
) -> str:
    """A metric with one sample."""
    return head(name, kind, text) + line(name, value, labels)


def histogram(
    name: str,
    text: str,
    bounds: Sequence[float],
    counts: Sequence[int],
    total: float,
    labels: Mapping[str, str] | None = None,
) -> str:
    """A histogram: `counts` for each bound and one for what is above all, not added up yet."""
    lines = [head(name, "histogram", text)]
    labels = dict(labels or {})
    below = 0
    for bound, count in zip((*map(str, bounds), "+Inf"), counts, strict=True):
        below += count
        lines.append(line(f"{name}_bucket", below, {**labels, "le": bound}))
    lines.append(line(f"{name}_sum", total, labels))
    lines.append(line(f"{name}_count", below, labels))
    return "".join(lines)

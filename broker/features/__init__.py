"""The add-ons. Each is a folder and one line here; take both away and the rest works without
it."""

from __future__ import annotations

import importlib
from typing import Any

from broker.features.interface import Feature

NAMES: tuple[str, ...] = (
    "usage",
    "delayed",
    "dedup",
    "transfer",
    "shovel",
    "federation",
    "stream_index",
    "tiers",
    "history",
)


def build(host: Any) -> list[Feature]:
    """The features of one broker: what the `build` of each folder makes for it."""
    return [importlib.import_module(f"{__name__}.{name}").build(host) for name in NAMES]

"""The add-ons. Each is a folder and one line here; take both away and the rest works without
it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
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


def asked(features: Iterable[Feature], hook: str) -> list[Callable[..., None]]:
    """What is to be called for a hook: of those features that override it."""
    return [getattr(each, hook) for each in features if each.overrides(hook)]


def build(host: Any) -> list[Feature]:
    """The features of one broker: what the `build` of each folder makes for it."""
    return [importlib.import_module(f"{__name__}.{name}").build(host) for name in NAMES]

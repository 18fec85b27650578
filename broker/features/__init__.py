"""The add-ons. Each is a folder and one line here; take both away and the rest goes on without
it."""

from __future__ import annotations

from typing import Any

from broker.features import delayed, usage
from broker.features.joints import Feature

BUILDERS = (usage.build, delayed.build)


def build(host: Any) -> list[Feature]:
    """The features of one broker."""
    return [builder(host) for builder in BUILDERS]

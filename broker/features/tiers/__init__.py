"""Tiers: sealed segments of streams go to an object store, and come from there when they are read.

`register` knows every object that this appliance made, `uploads` puts segments there and takes
their files off this disk, `deletions` removes objects, `cold` fetches what readers want. All that
concerns the store is done by the tiers process (`management/tiers`); docs/tiers.md tells the order
of the steps.
"""

from __future__ import annotations

from typing import Any

from broker.features.tiers.feature import Tiers


def build(host: Any) -> Tiers:
    """The tiers of a broker."""
    return Tiers(host)

"""Shovels: their definitions and states in the broker. They run in the process `bridges`
(`management/bridges`), which follows their definitions and reports their states.

`checks` refuses definitions that cannot run, `feature` keeps the states (docs/shovels.md).
"""

from __future__ import annotations

from typing import Any


def build(host: Any) -> Any:
    """The shovels of a broker; control verbs find them as `host.shovels`."""
    from broker.features.shovel.feature import Shovels

    host.shovels = Shovels(host)
    return host.shovels

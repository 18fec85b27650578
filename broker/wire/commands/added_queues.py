"""Queue names that no vhost keeps: what is added for them answers for them.

An addition is a module here with `NAMES` (to consume from or to give as reply-to), `is_reply` (a
routing key at the default exchange), `open_queue`, `targets`, `reply_name` and `limit_figures`, as
in `direct_reply`. It goes by deleting its files and its line.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

ADDED: tuple[str, ...] = ("direct_reply",)

_ALL: list[Any] = [importlib.import_module(f"broker.wire.commands.{name}") for name in ADDED]

of_name: Callable[[str], Any] = {name: each for each in _ALL for name in each.NAMES}.get
"""The addition that answers for a queue's name, or None."""


def of_key(routing_key: str) -> Any:
    """The addition that answers for a routing key at the default exchange, or None."""
    for each in _ALL:
        if each.is_reply(routing_key):
            return each
    return None


def limit_figures() -> list[tuple[str, int, bool, str]]:
    """What the additions count of clients that met a limit; see `broker.server.limited.Figure`."""
    return [figure for each in _ALL for figure in each.limit_figures()]

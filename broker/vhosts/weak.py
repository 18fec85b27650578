"""Calls of a vhost by its parts, without a circle of references: one that is deleted is freed."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import ParamSpec

P = ParamSpec("P")


def weakly(method: Callable[P, None]) -> Callable[P, None]:
    """Calls a bound method while its object is there. That is freed as if this were not."""
    reference = weakref.WeakMethod(method)

    def call(*args: P.args, **named: P.kwargs) -> None:
        found = reference()
        if found is not None:
            found(*args, **named)

    return call

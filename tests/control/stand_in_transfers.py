"""Transfers of the broker that stands in."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from broker.schema.tier_work import Answer


class Transfers:
    """One transfer, of another user, which is over whatever is done to it."""

    ROW = SimpleNamespace(
        id=7,
        user="other",
        source_vhost="/",
        target_vhost="/",
        source="q",
        state="finished",
        is_over=False,
    )
    figures = SimpleNamespace(messages={}, bytes={}, refused=0)

    def by_state(self) -> dict[str, int]:
        return {}

    def rows(self) -> list[Any]:
        return []

    def get(self, id: int) -> Any:
        return self.ROW

    def begin(self, queue: Any, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(shown=dict)

    def preview(self, queue: Any, most: int, **_: Any) -> Any:
        return SimpleNamespace(go_on=lambda ns: 0, looked=0, matched=0)

    def delete(self, transfer: Any, user: str) -> None:
        pass

    def pause(self, transfer: Any, user: str) -> None:
        pass

    def resume(self, transfer: Any, rate: int | None, user: str) -> None:
        pass


class Tiers:
    """No stream has any."""

    is_used = False

    def figures(self) -> dict[str, Any]:
        return {"store": "file:///objects/tiers", "state": "unused", "problem": ""}

    def problems(self) -> list[tuple[str, str, str]]:
        return []

    def adopt(self, done: Callable[[Answer], object]) -> None:
        done(Answer(1, owner="this"))

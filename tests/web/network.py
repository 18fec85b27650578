"""What a page asks the server for, as Chromium tells it."""

from __future__ import annotations

from typing import Any


class Requests:
    """Requests of a page that the server answered, not a cache."""

    def __init__(self, session: Any) -> None:
        self._answered: set[str] = set()
        self._cached: set[str] = set()
        session.send("Network.enable")
        session.on("Network.responseReceived", self._note)
        session.on(
            "Network.requestServedFromCache", lambda event: self._cached.add(event["requestId"])
        )

    def _note(self, event: dict[str, Any]) -> None:
        self._answered.add(event["requestId"])
        if event["response"].get("fromDiskCache"):
            self._cached.add(event["requestId"])

    def take(self) -> int:
        """Their number since the last call."""
        count = len(self._answered - self._cached)
        self._answered.clear()
        self._cached.clear()
        return count

"""What all transfers together have done since the broker started."""

from __future__ import annotations


class Figures:
    """Counts for the metrics, by mode; they never go down."""

    def __init__(self) -> None:
        self.messages: dict[str, int] = {"move": 0, "copy": 0, "replay": 0}
        self.bytes: dict[str, int] = dict(self.messages)
        self.refused = 0
        """Offers that a target did not take."""

    def add(self, mode: str, messages: int, size: int) -> None:
        """Messages were handed over, with bodies of `size` bytes."""
        self.messages[mode] += messages
        self.bytes[mode] += size

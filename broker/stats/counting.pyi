from typing import Any

class QueueCounts:
    def counts(self) -> dict[str, int]: ...

def count_queues(
    queues: list[Any], start: int, stop: int, sums: dict[str, QueueCounts]
) -> None: ...

class ChannelCounts:
    refused: int
    publishers: int
    unconfirmed: int
    unacknowledged: int
    uncommitted: int
    acks_uncommitted: int
    def add(self, channels: list[Any], start: int, stop: int) -> None: ...

from typing import final

@final
class Moderation:
    level: int
    is_awaited: bool
    def pause(self, began: int, now: int, frames: int, chunks: int, octets: int = 0) -> int: ...
    def slept(self, now: int) -> None: ...

from typing import final

@final
class Moderation:
    level: int
    def pause(self, began: int, now: int, frames: int, chunks: int) -> int: ...
    def slept(self, now: int) -> None: ...

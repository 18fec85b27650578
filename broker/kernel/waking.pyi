from typing import final

@final
class Waking:
    frames: int
    def is_early(self, now: int) -> bool: ...

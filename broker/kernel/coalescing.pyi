from typing import final

@final
class Coalescing:
    is_on: bool
    wide: int
    def rest(self, now: int, octets: int, is_all: bool, offered: int = 0) -> int: ...
    def room(self, size: int) -> int: ...

from typing import final

@final
class Coalescing:
    is_on: bool
    wide: int
    def rest(self, now: int, octets: int, is_all: bool) -> int: ...
    def narrow(self, offered: int) -> None: ...

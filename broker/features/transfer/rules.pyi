from collections.abc import Callable

class Rules:
    def __init__(
        self,
        key_matches: Callable[[str], bool] | None = None,
        header: str | None = None,
        value: str | None = None,
        since: int = -1,
        until: int = -1,
    ) -> None: ...
    def takes(self, routing_key: bytes, properties: bytes, timestamp: int) -> bool: ...

def reads_like(field: bytes, value: str) -> bool: ...

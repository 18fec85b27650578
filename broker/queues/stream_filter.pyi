BY_DEFAULT: int
ALL: int
ANY: int

class StreamFilter:
    def __init__(
        self,
        values: list[bytes],
        headers: list[tuple[bytes, bytes]],
        match_unfiltered: bool,
        match: int,
    ) -> None: ...
    @property
    def values(self) -> list[bytes]: ...
    @property
    def headers(self) -> list[tuple[bytes, bytes]]: ...
    @property
    def match_unfiltered(self) -> bool: ...
    def takes_properties(self, properties: bytes) -> bool: ...

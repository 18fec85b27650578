from collections.abc import Iterable

BY_DEFAULT: int
ALL: int
ANY: int

class WantedTexts:
    def __init__(self, texts: Iterable[bytes]) -> None: ...
    @property
    def looks(self) -> int: ...

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
    @property
    def match(self) -> int: ...
    @property
    def wanted_values(self) -> WantedTexts: ...
    @property
    def wanted_names(self) -> WantedTexts: ...

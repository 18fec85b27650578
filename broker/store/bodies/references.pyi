from collections.abc import Iterator

_Piece = tuple[int, int, int, bytes | None, list[tuple[int, int]]]

def references_in(
    directory: str, incarnation: int, pieces: list[_Piece]
) -> Iterator[list[bytes]]: ...

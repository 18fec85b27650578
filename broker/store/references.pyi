from collections.abc import Iterator

Piece = tuple[int, int, int, bytes | None, list[tuple[int, int]]]

def references_in(
    directory: str, incarnation: int, pieces: list[Piece]
) -> Iterator[list[bytes]]: ...

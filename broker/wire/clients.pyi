class Clients:
    version: int
    kept: dict[object, tuple[object, list[object] | None]]
    def changed(self) -> None: ...

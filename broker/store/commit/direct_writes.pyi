class DirectWrites:
    files: int
    @property
    def rounds(self) -> int: ...

"""File systems for tests of settings files: one in memory that can crash."""

from __future__ import annotations


class MemoryDisk:
    """Files in a dict. `crash_before_rename` makes `write_atomic` stop like a power cut."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.writes: list[str] = []
        self.crash_before_rename = False

    def read(self, path: str) -> bytes:
        try:
            return self.files[path]
        except KeyError:
            raise FileNotFoundError(2, "No such file or directory", path) from None

    def write_atomic(self, path: str, data: bytes, mode: int) -> None:
        self.writes.append(path)
        self.files[path + ".tmp"] = data[: len(data) // 2] if self.crash_before_rename else data
        if self.crash_before_rename:
            raise OSError(5, "Input/output error", path)
        self.files[path] = self.files.pop(path + ".tmp")

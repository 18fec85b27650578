from collections.abc import Callable
from ssl import MemoryBIO
from typing import Any

class Ciphertext:
    incoming: MemoryBIO
    outgoing: MemoryBIO
    received: memoryview
    has_ended: bool
    def __init__(self, plain: memoryview) -> None: ...
    def put(self, length: int) -> None: ...
    def decipher(self, read: Callable[..., Any]) -> int: ...
    def encipher(
        self, write: Callable[[memoryview], int], data: bytes | bytearray | memoryview
    ) -> bytes: ...

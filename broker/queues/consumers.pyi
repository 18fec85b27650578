from collections.abc import Iterator

from broker.kernel.contracts import Consumer

class Consumers:
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Consumer]: ...

from typing import Self

from broker.client.measuring import Histogram

class Unconfirmed:
    next: int
    base: int
    count: int
    acked: int
    nacked: int
    refused: list[int]
    def __new__(cls, histogram: Histogram | None = None) -> Self: ...

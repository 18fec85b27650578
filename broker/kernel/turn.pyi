from collections.abc import Callable

class Task: ...

class Turn:
    schedule: Callable[[Callable[[], None]], object] | None
    after: Callable[[], object] | None
    def __init__(
        self,
        schedule: Callable[[Callable[[], None]], object] | None = None,
        after: Callable[[], object] | None = None,
    ) -> None: ...
    def wake(self) -> None: ...
    def run(self) -> None: ...

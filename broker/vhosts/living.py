"""Which entries of a vhost's journal still matter."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from broker.vhosts.changes import QUEUE_DECLARED_BY, QUEUE_FLOW, binding_of, read_entry

End = tuple[str, str]
"""`queue` or `exchange`, and the name."""


def living_entries(entries: list[bytes]) -> Iterator[bytes]:
    """Of a journal's entries those that make up what is defined behind all of them, in an order in
    which they can be carried out. Raises FrameError and LookupError for one that cannot be read."""
    found = Found()
    for data in entries:
        found.add(data)
    return found.entries()


class Found:
    """The entries that still matter, of those that were added."""

    def __init__(self) -> None:
        # By what each of them is about. Such a dict has its keys in the order in which they came,
        # and what is declared anew comes anew.
        self._kept: dict[Any, bytes] = {}
        self._of: defaultdict[End, set[Any]] = defaultdict(set)
        """What goes with a queue or exchange: keys of `_kept`."""

    def entries(self) -> Iterator[bytes]:
        return iter(self._kept.values())

    def add(self, data: bytes) -> None:
        """The next entry of the journal."""
        method, change, _ = read_entry(data)
        match method:
            case "queue.declare" | "exchange.declare":
                end = _declared(method, change)
                self._drop(end)
                self._keep(end, data, end)
            case "queue.delete" | "exchange.delete":
                self._drop(_declared(method, change))
            case QUEUE_FLOW.name | QUEUE_DECLARED_BY.name:
                self._keep((method, change["queue"]), data, ("queue", change["queue"]))
            case "queue.bind" | "exchange.bind":
                binding = binding_of(method, change)
                destination = binding.destination_type, binding.destination
                self._keep(binding, data, ("exchange", binding.source), destination)
            case "queue.unbind" | "exchange.unbind":
                self._kept.pop(binding_of(method, change), None)
            case _:
                raise LookupError(f"an entry is a {method}")

    def _keep(self, key: Any, data: bytes, *ends: End) -> None:
        self._kept[key] = data
        for end in ends:
            self._of[end].add(key)

    def _drop(self, end: End) -> None:
        """A queue or exchange went, with all that goes with it."""
        for key in self._of.pop(end, ()):
            self._kept.pop(key, None)


def _declared(method: str, change: dict[str, Any]) -> End:
    kind = method.partition(".")[0]
    return kind, change[kind]

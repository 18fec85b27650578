"""What every exchange type shares: bindings, and how a route is looked up.

A type says by `add`, `remove` and `match` which destinations a routing key (and the headers) leads
to. Destinations are queues or other exchanges; following exchanges, alternate exchanges and loops
are the vhost's business.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from broker.kernel.contracts import Exchange
from broker.kernel.wide_dict import WideDict
from broker.routing.binding import Binding
from broker.settings.bounds import DEFAULTS

# For callers that route by key and headers alone.
NO_PROPERTIES: Mapping[str, Any] = MappingProxyType({})


class BoundExchange(Exchange):
    """An exchange with its bindings. Types override `add`, `remove` and `match`; `by_key` says that
    the headers do not matter, `by_each_key` that every routing key of a message, CC and BCC too,
    finds bindings of its own (otherwise a message is matched once, by its own key), `picks_one`
    that one of the bindings is picked for a message, so that each counts for the others."""

    type = ""
    by_key = True
    by_each_key = False
    picks_one = False
    argument_cost = 0
    """Bytes of memory, about, that each argument of a binding takes besides itself."""
    bounds = DEFAULTS

    def __init__(self, name: str, **properties: Any) -> None:
        super().__init__(name, **properties)
        self.policy: Any = None
        """The policies it is under (`broker.vhosts.policies`), or None."""
        self.effective: Mapping[str, Any] = self.arguments
        """The arguments that hold, by declaration and policies."""
        self.bindings: WideDict[Binding, Binding] = WideDict()
        self.changes = 0
        """How often a binding came or went: sorted lists of them are as of one such number."""
        self.followers: dict[str, int] = {}
        """Exchanges that are bound to this one, and by how many bindings."""
        self.incarnation = 0
        """Names its directories, where it has any; 0 for the predeclared ones."""
        # Joints of features; None is the fast path.
        self.holding: Any = None
        """A queue that takes messages whose time has not come: `takes(headers)`."""
        self.duplicates: Any = None
        """Remembers message ids: `identity(listed)`, `drops(identity)`, `remember`, `forget`."""
        self.watcher: Any = None
        """Called for each binding that is added or removed: `changed(binding, is_there)`."""

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        """Raises PreconditionFailed for arguments of an exchange that the type cannot use."""

    def check(self, binding: Binding) -> None:
        """Raises PreconditionFailed for a key or arguments that the type cannot use."""

    @property
    def is_plain(self) -> bool:
        """Whether no feature looks at each message."""
        return self.holding is None and self.duplicates is None

    def holds(self, headers: Mapping[str, Any]) -> bool:
        """Whether a message with these headers is held back now, to be routed later."""
        return self.holding is not None and self.holding.takes(headers)

    def bind(self, binding: Binding) -> bool:
        """Adds a binding; False if it is there already."""
        if binding in self.bindings:
            return False
        self.add(binding)
        self.bindings[binding] = binding
        self.changes += 1
        if binding.destination_type == "exchange":
            self.followers[binding.destination] = self.followers.get(binding.destination, 0) + 1
        if self.watcher is not None:
            self.watcher.changed(binding, True)
        return True

    def unbind(self, binding: Binding) -> bool:
        """Removes a binding; False if it is not there."""
        found = self.bindings.pop(binding, None)
        if found is None:
            return False
        self.changes += 1
        self.remove(found)
        if found.destination_type == "exchange":
            self.followers[found.destination] -= 1
            if not self.followers[found.destination]:
                del self.followers[found.destination]
        if self.watcher is not None:
            self.watcher.changed(found, False)
        return True

    def add(self, binding: Binding) -> None:
        raise NotImplementedError

    def remove(self, binding: Binding) -> None:
        raise NotImplementedError

    def match(
        self,
        routing_key: str,
        headers: Mapping[str, Any],
        properties: Mapping[str, Any] = NO_PROPERTIES,
    ) -> Iterator[Binding]:
        """The bindings that a message fits. `properties` are named as in
        `broker.fields.properties`."""
        raise NotImplementedError

    def match_all(
        self,
        routing_keys: Sequence[str],
        headers: Mapping[str, Any],
        properties: Mapping[str, Any] = NO_PROPERTIES,
    ) -> Iterable[Binding]:
        """The bindings that a message with several routing keys fits, its own key first."""
        keys = routing_keys if self.by_each_key else routing_keys[:1]
        if len(keys) == 1:
            return self.match(keys[0], headers, properties)
        return itertools.chain.from_iterable(self.match(key, headers, properties) for key in keys)

    def reconfigure(self, effective: Mapping[str, Any]) -> None:
        """Takes the arguments that hold now by declaration and policies, which are checked."""
        self.effective = effective

    @property
    def alternate(self) -> str | None:
        """Name of the exchange that gets what finds no queue here."""
        name = self.effective.get("alternate-exchange", self.effective.get("x-alternate-exchange"))
        return name if isinstance(name, str) else None

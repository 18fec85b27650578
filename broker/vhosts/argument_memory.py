"""Memory for the arguments of a vhost's queues, exchanges and bindings."""

from __future__ import annotations

from typing import Any

from broker.routing.binding import Binding
from broker.routing.exchange import BoundExchange
from broker.schema.arguments import memory_of
from broker.schema.errors import PreconditionFailed


def binding_memory(binding: Binding, exchange: BoundExchange) -> int:
    """Bytes of memory, about, that a binding's arguments take at its exchange."""
    arguments = binding.arguments
    if not arguments:
        return 0
    return memory_of(arguments) + exchange.argument_cost * len(arguments)


class ArgumentMemory:
    """What those of one vhost take together, and how much they may (`arguments_max`). Stored ones
    may be more than a limit that was lowered: they stay, and no more are taken."""

    __slots__ = ("_most", "_vhost", "taken")

    def __init__(self, vhost: str, most: int) -> None:
        self._vhost = vhost
        self._most = most
        self.taken = 0
        """Bytes, about."""

    def check(self, resource: str, more: int) -> None:
        """Raises PreconditionFailed where there is no room for the arguments of one more object,
        which errors name `resource`."""
        if more and self.taken + more > self._most:
            raise PreconditionFailed(
                f"cannot declare {resource}: its arguments would take {more} bytes of memory; those"
                f" in vhost '{self._vhost}' take {self.taken}, and no more than {self._most} are"
                " allowed (arguments_max): use fewer or shorter ones, or have the setting raised"
            )

    def take(self, arguments: dict[str, Any]) -> None:
        """A queue or an exchange with these has come."""
        if arguments:
            self.taken += memory_of(arguments)

    def give_back(self, arguments: dict[str, Any]) -> None:
        """It has gone."""
        if arguments:
            self.taken -= memory_of(arguments)

"""Which exchanges hold messages back, and where those messages go when they are due."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker.features.delayed.holding import Holding
from broker.features.interface import Feature
from broker.fields import properties
from broker.fields.codec import text
from broker.fields.headers import ListedProperties
from broker.kernel.reached import Reached, is_wide
from broker.kernel.steps import Found, Steps, first_step
from broker.settings.bounds import Bounds
from broker.store.files import disk

if TYPE_CHECKING:
    from broker.routing.exchange import BoundExchange
    from broker.vhosts.vhost import VHost

log = logging.getLogger("leveret.delayed")

# Routes that a release remembers while the topology stands still.
ROUTES_MAX = 1024

Routed = tuple[Found | Reached | Steps, bytes | None]


class Delayed(Feature):
    """The delayed messages of all vhosts."""

    directories = ("delayed", "schedule", "transient/schedule")

    def __init__(
        self,
        turn: Any,
        persister: Any,
        later: Callable[[float, Callable[[], None]], Any],
        bounds: Bounds,
    ) -> None:
        self._turn = turn
        self._persister = persister
        self._later = later
        self._bounds = bounds
        self._holdings: dict[Any, dict[str, Holding]] = {}

    def exchange_configured(self, vhost: VHost, exchange: BoundExchange) -> None:
        wanted = is_delayed(exchange)
        if exchange.holding is None and (wanted or self._left_behind(vhost, exchange)):
            self._attach(vhost, exchange, wanted)
        if exchange.holding is not None:
            exchange.holding.open = wanted

    def _left_behind(self, vhost: VHost, exchange: BoundExchange) -> bool:
        """Whether there are messages of a time when the exchange was a delayed one. Asks the disk
        only while a vhost is being recovered."""
        return (
            vhost.recovering
            and exchange.incarnation != 0
            and bool(disk.listdir(_log(vhost, exchange.incarnation)))
        )

    def _attach(self, vhost: VHost, exchange: BoundExchange, wanted: bool) -> None:
        holding = Holding(
            self._turn,
            self._persister,
            self._later,
            f"{vhost.directory}/delayed" if exchange.durable else vhost.transient_directory,
            f"{vhost.directory}/schedule" if exchange.durable else _transient_index(vhost),
            exchange.name,
            exchange.incarnation,
            exchange.durable,
            Route(vhost, exchange),
            vhost.bodies,
            self._bounds,
        )
        if vhost.recovering and exchange.durable:
            problems = holding.recover()
            if not (wanted or problems or holding.messages or holding.messages_leaving):
                # Its directories are removed with those of deleted exchanges.
                return
            for problem in problems:
                vhost.problems.append(
                    f"exchange '{exchange.name}' in vhost '{vhost.name}': {problem}"
                )
        exchange.holding = holding
        self._holdings.setdefault(vhost, {})[exchange.name] = holding

    def exchange_deleted(self, vhost: VHost, exchange: BoundExchange) -> None:
        if exchange.holding is not None:
            held = self._holdings[vhost]
            held.pop(exchange.name, None)
            if not held:
                # Nothing else lets go of a vhost that is deleted.
                del self._holdings[vhost]
            exchange.holding.delete()
            exchange.holding = None

    def vhost_recovered(self, vhost: VHost) -> None:
        """Directories of deleted exchanges are removed too."""
        living = {each.incarnation for each in self._holdings.get(vhost, {}).values()}
        for kind in ("delayed", "schedule"):
            directory = f"{vhost.directory}/{kind}"
            disk.makedirs(directory)
            vhost.owned.append((directory, living))
        disk.makedirs(_transient_index(vhost))

    def vhost_started(self, vhost: VHost) -> None:
        for holding in self._holdings.get(vhost, {}).values():
            holding.start()

    def tick(self, now_ms: int) -> None:
        for holdings in self._holdings.values():
            for holding in holdings.values():
                holding.rest_if_empty()

    def stop(self, now_ms: int) -> None:
        for holdings in self._holdings.values():
            for holding in holdings.values():
                holding.close()


def is_delayed(exchange: BoundExchange) -> bool:
    """Whether an exchange holds back what asks for it. The predeclared ones never do."""
    return bool(exchange.incarnation) and (
        exchange.type == "x-delayed-message" or exchange.effective.get("x-delayed-exchange") is True
    )


def _transient_index(vhost: VHost) -> str:
    return f"{vhost.transient_directory}/schedule"


def _log(vhost: VHost, incarnation: int) -> str:
    return f"{vhost.directory}/delayed/{incarnation:016x}"


class Route:
    """Where a message goes that is due."""

    def __init__(self, vhost: VHost, exchange: BoundExchange) -> None:
        self._vhost = vhost
        self._exchange = exchange
        self._known: dict[bytes, Routed] = {}
        self._version = -1

    def __call__(self, routing_key: bytes, listed: bytes) -> Routed:
        """The queues, or the steps that find very many, and the properties where they change."""
        version = self._vhost.topology_version
        if version != self._version:
            self._version = version
            self._known.clear()
            self._by_key = self._vhost.routes.is_by_key_when_due(self._exchange)
        is_plain = self._by_key and b"\x02CC" not in listed and b"\x03BCC" not in listed
        if is_plain:
            known = self._known.get(routing_key)
            if known is not None:
                return known
        told = properties.readable(listed)
        headers = told.get("headers", {})
        keys = [text(routing_key), *properties.copied_to(headers, "CC", "BCC")]
        changed = None
        if "BCC" in headers:
            # It was kept until here because these keys had to be known.
            without = ListedProperties(listed)
            without.remove_header("BCC")
            changed = without.encode()
        steps = self._vhost.routes.routing(self._exchange, keys, headers, told, due=True)
        found = first_step(steps), changed
        # Very many queues are found anew: a thousand keys may lead to all of them.
        if is_plain and len(self._known) < ROUTES_MAX and not is_wide(found[0]):
            self._known[routing_key] = found
        return found

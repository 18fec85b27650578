"""Dead lettering: where a message goes that its queue gives up, and what is written on it.

The headers are RabbitMQ's: `x-death`, newest first, with one entry for each queue and reason;
`x-first-death-*` set once, `x-last-death-*` each time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.fields.codec import Long, Malformed, Timestamp, octets, text
from broker.fields.headers import ListedProperties
from broker.fields.properties import copied_to, readable
from broker.kernel import clock
from broker.kernel.reached import Reached, is_wide
from broker.kernel.steps import Found, Steps, first_step
from broker.queues.classic import ClassicQueue
from broker.queues.types import MessageQueue
from broker.routing.exchange import BoundExchange
from broker.schema.arguments import SHORT_STRING_MOST
from broker.vhosts.routes import Routes

EXPIRATION_BIT = 8
COUNT_MAX = 2**63 - 1

Passes = Callable[[MessageQueue], bool]
Letter = tuple[Found | Reached | Steps, bytes, bytes, bytes, Passes | None]


class DeadLetters:
    """Finds the way of dead letters in one vhost."""

    def __init__(self, exchanges: dict[str, BoundExchange], routes: Routes) -> None:
        self._exchanges = exchanges
        self._routes = routes

    def address(
        self,
        queue: ClassicQueue,
        reason: str,
        exchange: bytes,
        routing_key: bytes,
        listed: bytes,
    ) -> Letter | None:
        """Queues, exchange, routing key and properties of a dead letter; None if its exchange is
        not there or nothing is bound for it, and then the message is gone. Very many queues are not
        looked at here, or only the steps that find them are returned: then the last part says of
        each whether it gets the letter (None: each does).

        `reason`: rejected, expired, maxlen or delivery_limit. `exchange`, `routing_key` and
        `listed` are those of the message as the queue has it. Properties that cannot be read stay
        as they are (the routing key finds the way), and so do headers that are full.
        """
        limits = queue.limits
        if limits is None or limits.dead_letter_exchange is None:
            return None
        through = self._exchanges.get(limits.dead_letter_exchange)
        if through is None:
            return None
        keys = [text(routing_key)]
        deaths: list[dict[str, Any]] = [{"queue": queue.name, "reason": reason}]
        try:
            properties = ListedProperties(listed)
            keys += copied_to({"CC": properties.header("CC")}, "CC")
            deaths = record_death(properties, queue.name, reason, text(exchange), keys)
            if limits.dead_letter_routing_key is not None:
                properties.remove_header("CC")
            listed = written_deaths(properties, list(deaths))
        except Malformed:
            pass
        except ValueError:
            # It was published before room was kept for what the broker adds.
            properties = ListedProperties(listed)
            properties.take(EXPIRATION_BIT)
            if limits.dead_letter_routing_key is not None:
                properties.remove_header("CC")
            listed = properties.encode()
        if limits.dead_letter_routing_key is not None:
            keys = [limits.dead_letter_routing_key]
        told = readable(listed)
        steps = self._routes.routing(through, keys, told.get("headers", {}), told)
        targets = first_step(steps)
        passes = None if reason == "rejected" else _no_cycle(deaths)
        if isinstance(targets, tuple) and not is_wide(targets) and passes is not None:
            targets, passes = tuple(filter(passes, targets)), None
        if targets == ():
            return None
        # A declaration of before this was refused may name a longer key.
        key = octets(keys[0])[:SHORT_STRING_MOST]
        return targets, octets(through.name), key, listed, passes


def record_death(
    properties: ListedProperties, queue: str, reason: str, exchange: str, routing_keys: list[str]
) -> list[dict[str, Any]]:
    """Writes a death into the headers, but for `x-death`. Returns all deaths, newest first. The
    message's own expiration is taken off, so that it does not expire again where it goes."""
    told = properties.header("x-death")
    deaths = merged(told) if isinstance(told, list) else []
    death: dict[str, Any] = {}
    for each in deaths:
        if each.get("queue") == queue and each.get("reason") == reason:
            death = each
            deaths.remove(each)
            break
    count = death.get("count")
    expiration = properties.take(EXPIRATION_BIT)
    if not death:
        death = {
            "count": Long(1),
            "reason": reason,
            "queue": queue,
            "time": Timestamp(clock.now() // 1000),
            "exchange": exchange,
            "routing-keys": routing_keys,
        }
        if expiration is not None:
            death["original-expiration"] = expiration
    else:
        death["count"] = count + 1 if isinstance(count, int) else 1
    deaths.insert(0, death)
    for each in deaths:
        # A publisher may have written anything here.
        if isinstance(each.get("count"), int):
            each["count"] = Long(min(each["count"], COUNT_MAX))
    for name, value in (("reason", reason), ("queue", queue), ("exchange", exchange)):
        if properties.header(f"x-first-death-{name}") is None:
            properties.set_header(f"x-first-death-{name}", value)
        properties.set_header(f"x-last-death-{name}", value)
    return deaths


def written_deaths(properties: ListedProperties, deaths: list[dict[str, Any]]) -> bytes:
    """The list of properties with these deaths. Where the headers have no room for all of them, the
    routing keys of the older ones are left out, then those of the last one, and then the oldest
    deaths: a message whose deaths are not known goes in circles. Raises ValueError if there is no
    room even for that."""
    while True:
        try:
            properties.set_header("x-death", deaths)
            return properties.encode()
        except ValueError:
            if any(each.get("routing-keys") for each in deaths[1:]):
                deaths[1:] = [{**each, "routing-keys": []} for each in deaths[1:]]
            elif deaths[0].get("routing-keys"):
                deaths[0] = {**deaths[0], "routing-keys": []}
            elif len(deaths) > 1:
                del deaths[(len(deaths) + 1) // 2 :]
            else:
                raise


def merged(told: list[Any]) -> list[dict[str, Any]]:
    """The deaths of a header, each queue and reason once, in their order: what a client wrote, or
    an old broker, may have several. The first one counts, and one without a count for as many as
    there are of it, as in RabbitMQ 3. What is no table is left out."""
    deaths = [each for each in told if isinstance(each, dict)]
    alike: dict[object, list[dict[str, Any]]] = {}
    for death in deaths:
        key = death.get("queue"), death.get("reason")
        is_named = all(isinstance(each, str) for each in key)
        alike.setdefault(key if is_named else id(death), []).append(death)
    if len(deaths) == 1:
        return deaths
    for same in alike.values():
        if not isinstance(same[0].get("count"), int):
            same[0]["count"] = len(same)
    return [same[0] for same in alike.values()]


def _no_cycle(deaths: list[dict[str, Any]]) -> Passes:
    return lambda target: not is_cycle(target.name, deaths)


def is_cycle(queue: str, deaths: list[dict[str, Any]]) -> bool:
    """Whether the message has been in this queue before and came back without a basic.reject
    since."""
    for death in deaths:
        if death.get("reason") == "rejected":
            return False
        if death.get("queue") == queue:
            return True
    return False

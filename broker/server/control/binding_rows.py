"""Bindings as RabbitMQ's API shows them, and the keys that name them."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus

from broker.schema.columns import value_at
from broker.schema.control_schema import Item, List
from broker.server.control.encoding import full_name
from broker.server.control.requests import Caller
from broker.server.control.rosters import Bound, rosters_of
from broker.server.control.views import View
from broker.server.pace import Pace

if TYPE_CHECKING:
    from broker.vhosts.vhost import VHost

_PLAIN_KEY = re.compile("[A-Za-z0-9_.-]+")
"""Most keys: what is not quoted."""

ENDS: dict[str, Callable[[Bound], Any]] = {
    "vhost": attrgetter("vhost"),
    "source": attrgetter("binding.source"),
    "destination": attrgetter("binding.destination"),
    "destination_type": attrgetter("binding.destination_type"),
    "routing_key": attrgetter("binding.routing_key"),
}
FIELDS: dict[str, Callable[[Bound], Any]] = {
    **ENDS,
    "arguments": attrgetter("binding.arguments"),
    "properties_key": lambda bound: properties_key(
        bound.binding.routing_key, bound.binding.arguments
    ),
}
"""The row of a binding, by field."""


class Bindings(View):
    """The noun `bindings`."""

    noun = "bindings"
    kept_order = ("vhost", "source")
    fixed = frozenset((*ENDS, "arguments", "properties_key"))
    knows_fields = True

    async def everything(self, caller: Caller, args: List, pace: Pace) -> list[Any]:
        if self.is_kept(args):
            vhosts = caller.reach(self.noun, args.vhost, args.user)
            source = None if args.source is None else _plain_name(args.source)
            return await rosters_of(self.broker).bindings(vhosts, pace, source)
        return await super().everything(caller, args, pace)

    def is_kept(self, args: List) -> bool:
        return args.destination is None and args.destination_type is None

    def candidates(self, vhosts: list[Any], args: List) -> Iterator[Bound]:
        for vhost in vhosts:
            for binding in vhost.bindings(
                *_ends(vhost, args.source, args.destination, args.destination_type),
                destination_type=args.destination_type,
            ):
                yield Bound(vhost.name, binding)

    def place(self, thing: Bound) -> str:
        return thing.vhost

    def locate(self, vhost: VHost, args: Item) -> Bound | None:
        found = find_binding(
            vhost,
            args.source or "",
            args.destination or "",
            args.destination_type or "queue",
            args.properties_key or "~",
        )
        return Bound(vhost.name, found) if found is not None else None

    name = staticmethod(ENDS["routing_key"])  # type: ignore[assignment]

    def order(self, thing: Bound) -> Any:
        one = thing.binding
        return (thing.vhost, one.source, one.destination_type, one.destination, one.routing_key)

    def sort_key(self, field: str) -> Callable[[Any], Any] | None:
        top, _, inner = field.partition(".")
        if field == "arguments":
            return lambda bound: str(bound.binding.arguments) if bound.binding.arguments else ""
        if not inner or top != "arguments":
            return FIELDS.get(field)
        parts = inner.split(".")
        return lambda bound: value_at(bound.binding.arguments, parts)

    def chooser(self, args: List) -> Callable[[Any], dict[str, Any]]:
        columns = args.columns
        if not columns:
            return lambda bound: self.row(bound, args)
        if any("." in column for column in columns):
            return super().chooser(args)
        wanted = [(name, FIELDS[name]) for name in dict.fromkeys(columns) if name in FIELDS]
        return lambda bound: {name: read(bound) for name, read in wanted}

    def row(self, thing: Bound, args: List | Item) -> dict[str, Any]:
        return {name: read(thing) for name, read in FIELDS.items()}


def find_binding(
    vhost: VHost, source: str, destination: str, destination_type: str, key: str
) -> Any | None:
    """The binding that a properties key names, or None; a key that is quoted once is understood
    too, unless another binding has that very key."""
    alike = None
    for binding in vhost.bindings(
        *_ends(vhost, source, destination, destination_type), destination_type=destination_type
    ):
        real = properties_key(binding.routing_key, binding.arguments)
        if real == key:
            return binding
        if alike is None and real != "~" and _unquoted(binding.routing_key, real) == key:
            alike = binding
    return alike


def _unquoted(routing_key: str, real: str) -> str:
    """The key as a client sends it that quotes it only once, for the path, and so loses what
    RabbitMQ quotes in the key itself."""
    return routing_key + real[real.index("~") :] if "~" in real else routing_key


def properties_key(routing_key: str, arguments: Mapping[str, Any] | None) -> str:
    """What names a binding among those between the same two ends, as in RabbitMQ: `~` for an empty
    key, else the key quoted, and `~` and a hash where there are arguments."""
    if not arguments and _PLAIN_KEY.fullmatch(routing_key):
        return routing_key
    quoted = quote_plus(routing_key.encode("utf-8", "surrogateescape")).replace("~", "%7E")
    if not arguments:
        return quoted or "~"
    text = json.dumps(arguments, sort_keys=True, default=repr)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:9]
    return f"{quoted}~{base64.urlsafe_b64encode(digest).decode('ascii')}"


def _ends(
    vhost: VHost, source: str | None, destination: str | None, destination_type: str | None
) -> tuple[str | None, str | None]:
    """The names in full of what a binding is between; None stays None."""
    names = vhost.exchanges if destination_type == "exchange" else vhost.queues
    return (
        None if source is None else full_name(vhost.exchanges, _plain_name(source)),
        None if destination is None else full_name(names, _plain_name(destination)),
    )


def _plain_name(name: str) -> str:
    return "" if name == "amq.default" else name

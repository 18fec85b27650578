"""Vhosts, users, permissions, limits and parameters as RabbitMQ's API shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from broker.access.secrets import without_secrets
from broker.schema.columns import value_at
from broker.schema.control_schema import NOUNS, Item, List
from broker.schema.sight import Sight
from broker.server.control.figures import added, counters_in, details, message_stats, stats_key
from broker.server.control.views import Part, Read, View
from broker.stats import Totals
from broker.stats.sampler import MESSAGE_COUNTERS

if TYPE_CHECKING:
    from broker.vhosts.vhost import VHost

VHOST_FIELDS: dict[str, Read] = {
    "name": attrgetter("name"),
    "description": attrgetter("description"),
    "tags": attrgetter("tags"),
    "default_queue_type": lambda vhost: vhost.default_queue_type or "classic",
    "metadata": lambda vhost: {
        "description": vhost.description,
        "tags": vhost.tags,
        "protected_from_deletion": vhost.protected_from_deletion,
    },
    "tracing": attrgetter("tracing"),
    "protected_from_deletion": attrgetter("protected_from_deletion"),
}
"""The fields of a vhost that are read of it alone."""

_LENGTHS = ("messages_ready", "messages_unacknowledged")
_OCTETS = ("recv_oct", "send_oct")
_LEVELS = (*_LENGTHS, "message_bytes", "connections", "queues", "exchanges", "consumers")


def _messages_of(totals: Callable[[str], Totals]) -> Read:
    ready, unacked = _LENGTHS

    def messages(vhost: VHost) -> float:
        levels = totals(vhost.name).levels
        return levels[ready] + levels[unacked]

    return messages


def _messages_rate_of(totals: Callable[[str], Totals]) -> Read:
    ready, unacked = _LENGTHS

    def rate(vhost: VHost) -> float:
        found = totals(vhost.name)
        return found.rate(ready) + found.rate(unacked)

    return rate


class VHosts(View):
    """The noun `vhosts`. With `user` those that this user may look into."""

    noun = "vhosts"
    missing = "vhost_not_found"

    def candidates(self, vhosts: list[Any], args: List) -> Iterator[Any]:
        present = list(self.broker.vhosts.values())
        if args.user is None:
            return iter(present)
        access = self.broker.access
        user = access.users.get(args.user)
        if user is None:
            return iter(())
        other = Sight(access, user)
        return (vhost for vhost in present if other.of_vhost(vhost.name))

    def place(self, thing: Any) -> str:
        return str(thing.name)

    def locate(self, vhost: VHost, args: Item) -> Any | None:
        return self.broker.vhosts.get(args.name or "")

    def name(self, thing: Any) -> str:
        return str(thing.name)

    def sort_key(self, field: str) -> Callable[[Any], Any] | None:
        if field == "name":
            return attrgetter("name")
        totals = self.stats.vhost
        if field in _LEVELS:
            return lambda vhost: totals(vhost.name).levels[field]
        if field in _OCTETS:
            return lambda vhost: totals(vhost.name).counters[field]
        level = field.removesuffix("_details.rate")
        if level in (*_LENGTHS, *_OCTETS) and level != field:
            return lambda vhost: totals(vhost.name).rate(level)
        if level == "messages":
            return _messages_rate_of(totals) if level != field else _messages_of(totals)
        return stats_key(
            field, MESSAGE_COUNTERS, self._totals, lambda vhost: totals(vhost.name).counters
        )

    def row(self, thing: Any, args: List | Item) -> dict[str, Any]:
        if not args.disable_stats:
            return self.builder(args)(thing)
        return {name: read(thing) for name, read in self._facts().items()}

    def _facts(self) -> dict[str, Read]:
        """The fields that are no figures."""
        return VHOST_FIELDS | {"cluster_state": lambda vhost: {self.broker.node_name: "running"}}

    def fields(self) -> dict[str, Read]:
        return self._facts()

    def parts(self, args: List | Item, columns: list[str] | None) -> list[Part]:
        counters = counters_in(columns, MESSAGE_COUNTERS)
        age = args.ages.get("data_rates")

        def lengths(vhost: VHost) -> dict[str, Any]:
            totals = self._totals(vhost)
            ready, unacked = (
                details(name, totals, args.ages.get("lengths"), self.now) for name in _LENGTHS
            )
            return {
                "messages_details": added(ready, unacked),
                "messages_ready_details": ready,
                "messages_unacknowledged_details": unacked,
            }

        def held(vhost: VHost) -> dict[str, Any]:
            totals = self._totals(vhost)
            levels, counted = totals.levels, totals.counters
            row = {name: int(levels[name]) for name in _LEVELS}
            row["messages"] = row["messages_ready"] + row["messages_unacknowledged"]
            return row | {name: int(counted[name]) for name in _OCTETS}

        def counted(vhost: VHost) -> dict[str, Any]:
            totals = self._totals(vhost)
            counts = totals.counters
            return {"message_stats": message_stats(counters, counts, totals, args.ages, self.now)}

        def rates(vhost: VHost) -> dict[str, Any]:
            totals = self._totals(vhost)
            return {f"{name}_details": details(name, totals, age, self.now) for name in _OCTETS}

        return [
            Part(frozenset(("messages", *_LEVELS, *_OCTETS)), held),
            Part(frozenset(f"{name}_details" for name in ("messages", *_LENGTHS)), lengths),
            Part(frozenset(("message_stats",)), counted),
            Part(frozenset(f"{name}_details" for name in _OCTETS), rates),
        ]

    def _totals(self, vhost: VHost) -> Totals:
        return self.stats.vhost(vhost.name)

    def live(self, thing: Any) -> dict[str, Any]:
        totals = self.stats.vhost(thing.name)
        live: dict[str, Any] = {
            name: int(totals.levels[name])
            for name in ("messages_ready", "messages_unacknowledged", "connections", "queues")
        }
        live["messages"] = live["messages_ready"] + live["messages_unacknowledged"]
        live["message_stats.publish_details.rate"] = totals.rate("publish")
        return live


class Users(View):
    """The noun `users`."""

    noun = "users"

    def candidates(self, vhosts: list[Any], args: List) -> Iterator[Any]:
        access = self.broker.access
        with_permissions = {user for user, _ in access.permissions}
        for user in list(access.users.values()):
            is_wanted = not args.without_permissions or user.name not in with_permissions
            yield user if is_wanted else None

    def place(self, thing: Any) -> None:
        return None

    def locate(self, vhost: VHost, args: Item) -> Any | None:
        return self.broker.access.users.get(args.name or "")

    def name(self, thing: Any) -> str:
        return str(thing.name)

    def sort_key(self, field: str) -> Callable[[Any], Any] | None:
        return (lambda user: user.name) if field == "name" else None

    def row(self, thing: Any, args: List | Item) -> dict[str, Any]:
        return {
            "name": thing.name,
            "password_hash": thing.password_hash,
            "hashing_algorithm": thing.hashing_algorithm,
            "tags": thing.tags,
            "limits": thing.limits,
            "loopback_only": thing.loopback_only,
        }


_PLACES = {"vhost": "vhost", "user": "user"}
"""The field of a record that a noun's rule asks about."""


class _Records(View):
    """Nouns whose rows are records of `Access` as they are."""

    sorts: tuple[str, ...] = ()

    def records(self) -> Iterable[Any]:
        raise NotImplementedError

    def candidates(self, vhosts: list[Any], args: List) -> Iterator[Any]:
        for record in list(self.records()):
            is_wanted = (
                (args.vhost is None or getattr(record, "vhost", args.vhost) == args.vhost)
                and (args.user is None or getattr(record, "user", args.user) == args.user)
                and (args.component is None or record.component == args.component)
            )
            yield record if is_wanted else None

    def place(self, thing: Any) -> str | None:
        place: str | None = getattr(thing, _PLACES.get(NOUNS[self.noun].scope, ""), None)
        return place

    def locate(self, vhost: VHost, args: Item) -> Any | None:
        for record in self.records():
            if all(getattr(record, name) == getattr(args, name) for name in self.sorts):
                return record
        return None

    def name(self, thing: Any) -> str:
        return str(getattr(thing, self.sorts[-1]))

    def order(self, thing: Any) -> Any:
        return self._order(thing)

    @cached_property
    def _order(self) -> Callable[[Any], Any]:
        return attrgetter(*self.sorts)

    def sort_key(self, field: str) -> Callable[[Any], Any] | None:
        return attrgetter(field) if field in self.sorts else None

    def row(self, thing: Any, args: List | Item) -> dict[str, Any]:
        row: dict[str, Any] = msgspec.to_builtins(thing)
        return row


class Permissions(_Records):
    """The noun `permissions`."""

    noun = "permissions"
    sorts = ("vhost", "user")

    def records(self) -> Iterable[Any]:
        return list(self.broker.access.permissions.values())


class TopicPermissions(_Records):
    """The noun `topic-permissions`."""

    noun = "topic-permissions"
    sorts = ("vhost", "user", "exchange")

    def records(self) -> Iterable[Any]:
        return list(self.broker.access.topic_permissions.values())


def _key_of_value(field: str) -> Callable[[Any], Any] | None:
    """How records are sorted by a field of their values, `value.…`; None for another field."""
    top, _, inner = field.partition(".")
    if top != "value" or not inner:
        return None
    parts = inner.split(".")
    return lambda record: value_at(without_secrets(record.value), parts)


def _hide_secrets(row: dict[str, Any], args: List | Item) -> None:
    """Takes the secrets out of a row's value, unless they are asked for."""
    if not args.secrets:
        row["value"] = without_secrets(row["value"])


class Parameters(_Records):
    """The noun `parameters`."""

    noun = "parameters"
    sorts = ("component", "vhost", "name")

    def records(self) -> Iterable[Any]:
        return list(self.broker.access.parameters.all())

    def sort_key(self, field: str) -> Callable[[Any], Any] | None:
        return _key_of_value(field) or super().sort_key(field)

    def row(self, thing: Any, args: List | Item) -> dict[str, Any]:
        row = super().row(thing, args)
        _hide_secrets(row, args)
        # RabbitMQ's rows have none of them; the list of shovels shows owner and pause.
        row.pop("owner", None)
        row.pop("paused", None)
        row.pop("sealed", None)
        return row


class GlobalParameter(msgspec.Struct):
    """One global parameter."""

    name: str
    value: Any


class GlobalParameters(_Records):
    """The noun `global-parameters`."""

    noun = "global-parameters"
    sorts = ("name",)

    def records(self) -> Iterable[Any]:
        return [
            GlobalParameter(name, value)
            for name, value in self.broker.access.global_parameters.items()
        ]

    def sort_key(self, field: str) -> Callable[[Any], Any] | None:
        return _key_of_value(field) or super().sort_key(field)

    def row(self, thing: Any, args: List | Item) -> dict[str, Any]:
        row = super().row(thing, args)
        _hide_secrets(row, args)
        return row


class Limits(msgspec.Struct, omit_defaults=True):
    """Limits of one vhost or of one user, in RabbitMQ's shape."""

    value: dict[str, int]
    vhost: str = ""
    user: str = ""


class VHostLimits(_Records):
    """The noun `vhost-limits`."""

    noun = "vhost-limits"
    sorts = ("vhost",)

    def records(self) -> Iterable[Any]:
        return [
            Limits(dict(value), vhost=vhost)
            for vhost, value in self.broker.access.vhost_limits.items()
        ]


class UserLimits(_Records):
    """The noun `user-limits`."""

    noun = "user-limits"
    sorts = ("user",)

    def records(self) -> Iterable[Any]:
        return [
            Limits(dict(user.limits), user=user.name)
            for user in self.broker.access.users.values()
            if user.limits
        ]

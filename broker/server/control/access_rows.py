"""Vhosts, users, permissions, limits and parameters as RabbitMQ's API shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from broker.access.secrets import without_secrets
from broker.control_schema import NOUNS, Item, List
from broker.server.control.figures import added, details, message_stats
from broker.server.control.views import View
from broker.sight import Sight
from broker.stats.sampler import MESSAGE_COUNTERS


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

    def locate(self, vhost: Any, args: Item) -> Any | None:
        return self.broker.vhosts.get(args.name)

    def name(self, thing: Any) -> str:
        return str(thing.name)

    def sort_key(self, field: str) -> Callable[[Any], Any] | None:
        return (lambda vhost: vhost.name) if field == "name" else None

    def row(self, thing: Any, args: List | Item) -> dict[str, Any]:
        row: dict[str, Any] = {
            "name": thing.name,
            "description": thing.description,
            "tags": thing.tags,
            "default_queue_type": thing.default_queue_type or "classic",
            "metadata": {
                "description": thing.description,
                "tags": thing.tags,
                "protected_from_deletion": thing.protected_from_deletion,
            },
            "cluster_state": {self.broker.node_name: "running"},
            "tracing": thing.tracing,
            "protected_from_deletion": thing.protected_from_deletion,
        }
        return row if args.disable_stats else row | self._figures(thing, args)

    def _figures(self, thing: Any, args: List | Item) -> dict[str, Any]:
        totals = self.stats.vhost(thing.name)
        lengths, rates = args.ages.get("lengths"), args.ages.get("data_rates")
        ready_details = details("messages_ready", totals, lengths, self.now)
        unacked_details = details("messages_unacknowledged", totals, lengths, self.now)
        ready = int(totals.levels["messages_ready"])
        unacked = int(totals.levels["messages_unacknowledged"])
        row: dict[str, Any] = {
            "messages": ready + unacked,
            "messages_details": added(ready_details, unacked_details),
            "messages_ready": ready,
            "messages_unacknowledged": unacked,
            "messages_ready_details": ready_details,
            "messages_unacknowledged_details": unacked_details,
            "message_bytes": int(totals.levels["message_bytes"]),
            "message_stats": message_stats(
                MESSAGE_COUNTERS, totals.counters, totals, args.ages, self.now
            ),
        }
        for name in ("recv_oct", "send_oct"):
            row[name] = int(totals.counters[name])
            row[f"{name}_details"] = details(name, totals, rates, self.now)
        for name in ("connections", "queues", "exchanges", "consumers"):
            row[name] = int(totals.levels[name])
        return row

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
            if not args.without_permissions or user.name not in with_permissions:
                yield user

    def place(self, thing: Any) -> None:
        return None

    def locate(self, vhost: Any, args: Item) -> Any | None:
        return self.broker.access.users.get(args.name)

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
            if args.vhost is not None and getattr(record, "vhost", args.vhost) != args.vhost:
                continue
            if args.user is not None and getattr(record, "user", args.user) != args.user:
                continue
            if args.component is not None and record.component != args.component:
                continue
            yield record

    def place(self, thing: Any) -> str | None:
        place: str | None = getattr(thing, _PLACES.get(NOUNS[self.noun].scope, ""), None)
        return place

    def locate(self, vhost: Any, args: Item) -> Any | None:
        for record in self.records():
            if all(getattr(record, name) == getattr(args, name) for name in self.sorts):
                return record
        return None

    def name(self, thing: Any) -> str:
        return str(getattr(thing, self.sorts[-1]))

    def order(self, thing: Any) -> Any:
        return tuple(getattr(thing, name) for name in self.sorts)

    def sort_key(self, field: str) -> Callable[[Any], Any] | None:
        return (lambda thing: getattr(thing, field)) if field in self.sorts else None

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


class _Secretive(_Records):
    """Records whose values are shown without their secrets, unless those are asked for."""

    def row(self, thing: Any, args: List | Item) -> dict[str, Any]:
        row = super().row(thing, args)
        if not args.secrets:
            row["value"] = without_secrets(row["value"])
        return row


class Parameters(_Secretive):
    """The noun `parameters`."""

    noun = "parameters"
    sorts = ("component", "vhost", "name")

    def records(self) -> Iterable[Any]:
        return list(self.broker.access.parameters.all())


class GlobalParameter(msgspec.Struct):
    """One global parameter."""

    name: str
    value: Any


class GlobalParameters(_Secretive):
    """The noun `global-parameters`."""

    noun = "global-parameters"
    sorts = ("name",)

    def records(self) -> Iterable[Any]:
        return [
            GlobalParameter(name, value)
            for name, value in self.broker.access.global_parameters.items()
        ]


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

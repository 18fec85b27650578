"""Vhosts, users, permissions, limits and parameters as RabbitMQ's API shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from broker.access.secrets import without_secrets
from broker.control_schema import Item, List
from broker.server.control.figures import added, details, message_stats
from broker.server.control.requests import Caller, not_authorised, not_found
from broker.server.control.views import View
from broker.stats.sampler import MESSAGE_COUNTERS


class VHosts(View):
    """The noun `vhosts`: those one has a permission row for; all for who may monitor. With `user`
    those that this user may look into."""

    def all(self, caller: Caller, args: List) -> Iterator[Any]:
        if args.user is not None and args.user != caller.name:
            caller.require("administrator")
            access = self.broker.access
            return (
                vhost
                for vhost in list(self.broker.vhosts.values())
                if access.vhost_access(args.user, vhost.name)
            )
        all_of_them = caller.sees_others and args.user is None
        return (
            vhost
            for vhost in list(self.broker.vhosts.values())
            if all_of_them or caller.sees_vhost(vhost.name)
        )

    def find(self, caller: Caller, args: Item) -> Any:
        vhost = self.broker.vhosts.get(args.name)
        if vhost is None:
            raise not_found("vhost_not_found")
        return vhost

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

    def all(self, caller: Caller, args: List) -> Iterator[Any]:
        access = self.broker.access
        with_permissions = {user for user, _ in access.permissions}
        for user in list(access.users.values()):
            if not args.without_permissions or user.name not in with_permissions:
                yield user

    def find(self, caller: Caller, args: Item) -> Any:
        user = self.broker.access.users.get(args.name)
        if user is None:
            raise not_found("Not Found")
        return user

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


class _Records(View):
    """Nouns whose rows are records of `Access` as they are."""

    sorts: tuple[str, ...] = ()

    def records(self) -> Iterable[Any]:
        raise NotImplementedError

    def all(self, caller: Caller, args: List) -> Iterator[Any]:
        for record in list(self.records()):
            if args.vhost is not None and getattr(record, "vhost", args.vhost) != args.vhost:
                continue
            if args.user is not None and getattr(record, "user", args.user) != args.user:
                continue
            if args.component is not None and record.component != args.component:
                continue
            yield record

    def find(self, caller: Caller, args: Item) -> Any:
        for record in self.records():
            if all(getattr(record, name) == getattr(args, name) for name in self.sorts):
                return record
        raise not_found("Not Found")

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

    sorts = ("vhost", "user")

    def records(self) -> Iterable[Any]:
        return list(self.broker.access.permissions.values())


class TopicPermissions(_Records):
    """The noun `topic-permissions`."""

    sorts = ("vhost", "user", "exchange")

    def records(self) -> Iterable[Any]:
        return list(self.broker.access.topic_permissions.values())


class _Secretive(_Records):
    """Records whose values are shown without their secrets, unless an administrator asks."""

    def all(self, caller: Caller, args: List) -> Iterator[Any]:
        if args.secrets:
            caller.require("administrator")
        return super().all(caller, args)

    def find(self, caller: Caller, args: Item) -> Any:
        if args.secrets:
            caller.require("administrator")
        return super().find(caller, args)

    def row(self, thing: Any, args: List | Item) -> dict[str, Any]:
        row = super().row(thing, args)
        if not args.secrets:
            row["value"] = without_secrets(row["value"])
        return row


class Parameters(_Secretive):
    """The noun `parameters`: of the vhosts one sees."""

    sorts = ("component", "vhost", "name")

    def all(self, caller: Caller, args: List) -> Iterator[Any]:
        if args.vhost is not None:
            caller.vhost(args.vhost)
        return (record for record in super().all(caller, args) if caller.sees_vhost(record.vhost))

    def find(self, caller: Caller, args: Item) -> Any:
        caller.vhost(args.vhost or "/")
        return super().find(caller, args)

    def records(self) -> Iterable[Any]:
        return list(self.broker.access.parameters.all())


class GlobalParameter(msgspec.Struct):
    """One global parameter."""

    name: str
    value: Any


class GlobalParameters(_Secretive):
    """The noun `global-parameters`."""

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
    """The noun `vhost-limits`: of the vhosts one sees."""

    sorts = ("vhost",)

    def records(self) -> Iterable[Any]:
        return [
            Limits(dict(value), vhost=vhost)
            for vhost, value in self.broker.access.vhost_limits.items()
        ]

    def all(self, caller: Caller, args: List) -> Iterator[Any]:
        if args.vhost is not None:
            caller.vhost(args.vhost)
        return (limits for limits in super().all(caller, args) if caller.sees_vhost(limits.vhost))

    def find(self, caller: Caller, args: Item) -> Any:
        caller.vhost(args.vhost or "/")
        return super().find(caller, args)


class UserLimits(_Records):
    """The noun `user-limits`: one's own, or all as administrator."""

    sorts = ("user",)

    def records(self) -> Iterable[Any]:
        return [
            Limits(dict(user.limits), user=user.name)
            for user in self.broker.access.users.values()
            if user.limits
        ]

    def all(self, caller: Caller, args: List) -> Iterator[Any]:
        all_users = caller.has("administrator")
        if args.user is not None and args.user != caller.name and not all_users:
            raise not_authorised("Not administrator user")
        return (
            limits
            for limits in super().all(caller, args)
            if all_users or limits.user == caller.name
        )

    def find(self, caller: Caller, args: Item) -> Any:
        if args.user != caller.name:
            caller.require("administrator")
        return super().find(caller, args)

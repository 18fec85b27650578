"""Policies as RabbitMQ's API shows them, and what of them holds for a queue or an exchange."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from broker.schema.control_schema import Item, List
from broker.schema.policy_keys import KEYS
from broker.server.control.picking import AsText
from broker.server.control.views import View
from broker.vhosts.policies import Policy, Setting, Source, effective, settings

if TYPE_CHECKING:
    from broker.vhosts.vhost import VHost

_NONE = {"queue": 0, "exchange": 0}


class Policies(View):
    """The noun `policies`."""

    noun = "policies"
    operator = False

    def candidates(self, vhosts: list[Any], args: List) -> Iterator[Policy]:
        seen = {vhost.name for vhost in vhosts}
        for policy in self.broker.policies.all(operator=self.operator):
            if policy.vhost in seen:
                yield policy

    def place(self, thing: Any) -> str:
        return str(thing.vhost)

    def locate(self, vhost: VHost, args: Item) -> Policy | None:
        return self.broker.policies.get(vhost.name, args.name or "", operator=self.operator)

    def name(self, thing: Any) -> str:
        return str(thing.name)

    def order(self, thing: Any) -> Any:
        return (thing.vhost, thing.name)

    def sort_key(self, field: str) -> Callable[[Any], Any] | None:
        if field == "apply-to":
            field = "apply_to"
        if field in ("vhost", "name", "pattern", "apply_to", "priority"):
            return attrgetter(field)
        if field == "definition":
            return AsText(attrgetter(field))
        if field in ("queues", "exchanges"):
            owner = field.removesuffix("s")
            return lambda policy: self._counts.get(id(policy), _NONE)[owner]
        return None

    @cached_property
    def _counts(self) -> dict[int, dict[str, int]]:
        """Once for all rows: every policy in force is looked at for it."""
        counts: dict[int, dict[str, int]] = self.broker.policies.counts()
        return counts

    def row(self, thing: Any, args: List | Item) -> dict[str, Any]:
        count = self._counts.get(id(thing), _NONE)
        return {
            **policy_row(thing),
            "queues": count["queue"],
            "exchanges": count["exchange"],
        }


class OperatorPolicies(Policies):
    """The noun `operator-policies`."""

    noun = "operator-policies"
    operator = True


def policy_row(policy: Policy) -> dict[str, Any]:
    """A policy as definitions files hold it."""
    return {
        "vhost": policy.vhost,
        "name": policy.name,
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": policy.definition,
        "priority": policy.priority,
    }


def applied(owner: str, thing: Any) -> dict[str, Any]:
    """The same for a row without figures: only what there is."""
    in_force = thing.policy
    if in_force is None:
        return {}
    names = {"policy": in_force.name, "operator_policy": in_force.operator_name}
    return {key: name for key, name in names.items() if name is not None}


GOVERNED = frozenset(
    (
        "policy",
        "operator_policy",
        "effective_policy_definition",
        "effective_arguments",
        "effective_policy_arguments",
    )
)
"""The keys of `governed`."""


def governed(owner: str, thing: Any) -> dict[str, Any]:
    """RabbitMQ's keys for what an object is under, and LavinMQ's for what of it is in force."""
    in_force = thing.policy
    if in_force is None:
        return {
            "policy": None,
            "operator_policy": None,
            "effective_policy_definition": {},
            "effective_arguments": list(thing.arguments),
            "effective_policy_arguments": [],
        }
    holding = effective(owner, thing.arguments, in_force)
    arguments = [name for name, value in thing.arguments.items() if holding[name] == value]
    policy_arguments = [
        key
        for key, value in in_force.definition.items()
        if KEYS[key].rule == "policy"
        or (
            KEYS[key].rule != "none"
            and KEYS[key].owner == owner
            and KEYS[key].argument.name in holding
            and KEYS[key].argument.name not in arguments
        )
    ]
    return {
        "policy": in_force.name,
        "operator_policy": in_force.operator_name,
        "effective_policy_definition": in_force.definition,
        "effective_arguments": arguments,
        "effective_policy_arguments": policy_arguments,
    }


def setting_rows(owner: str, thing: Any) -> list[dict[str, Any]]:
    """Everything that is set for an object: what holds, where from, and what it overrules."""
    return [_setting_row(setting) for setting in settings(owner, thing.arguments, thing.policy)]


def _setting_row(setting: Setting) -> dict[str, Any]:
    return {
        "argument": setting.argument,
        "key": setting.key,
        "value": setting.value,
        **_source_row(setting.source),
        "against": setting.against,
        "overruled": [
            {"value": source.value, **_source_row(source)} for source in setting.overruled
        ],
    }


def _source_row(source: Source) -> dict[str, Any]:
    return {"source": source.kind, "source_name": source.name}

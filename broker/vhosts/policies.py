"""Policies and operator policies: which of them an object is under, and what follows for it.

An object is under at most one policy and one operator policy of its vhost: of those whose pattern
is found in its name and that apply to its kind, the one with the highest priority, among equals
the first by name. Both are kept as JSON files in RabbitMQ's shape (docs/formats/settings.md). What
they set is merged with the arguments of the declaration by the rules of
`broker.schema.policy_keys`.

Nothing here waits, and nothing here goes over the objects: `VHost.apply_policies` does that in
steps.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from broker.access.patterns import BadPattern, Pattern
from broker.access.records import BadSetting
from broker.queues import types as queue_types
from broker.schema.arguments import against_lean
from broker.schema.policy_keys import (
    APPLY_TO,
    KEYS,
    BadDefinition,
    check,
    check_together,
    lower,
    term,
)
from broker.schema.upstream_keys import UPSTREAM_PATTERN
from broker.settings.bounds import DEFAULTS
from broker.settings.files import SettingsError, SettingsFiles
from broker.vhosts.pattern_steps import PatternSteps
from broker.vhosts.ranked_policies import Compiled, RankedPolicies

POLICIES_FILE = "policies.json"
OPERATOR_POLICIES_FILE = "operator_policies.json"

_QUEUE_TYPES = {"classic_queues": "classic", "quorum_queues": "quorum", "streams": "stream"}


class Policy(msgspec.Struct, frozen=True):
    """One policy or operator policy, as RabbitMQ's API and definitions files write it."""

    vhost: str
    name: str
    pattern: str
    definition: dict[str, Any]
    apply_to: str = msgspec.field(default="all", name="apply-to")
    priority: int = 0

    def fits(self, owner: str, type: str) -> bool:
        """Whether it applies to objects of this kind: `queue` or `exchange`, and a queue's type."""
        if self.apply_to == "all":
            return True
        if owner == "exchange":
            return self.apply_to == "exchanges"
        return self.apply_to == "queues" or _QUEUE_TYPES.get(self.apply_to) == type


class InForce:
    """What one object is under: the two policies, and their definitions merged. Objects under the
    same two share it; `count` says how many they are."""

    __slots__ = ("count", "definition", "operator_policy", "policy")

    def __init__(self, policy: Policy | None, operator_policy: Policy | None) -> None:
        self.policy = policy
        self.operator_policy = operator_policy
        self.definition = merged(policy, operator_policy)
        self.count = {"queue": 0, "exchange": 0}

    @property
    def name(self) -> str | None:
        """The policy's name."""
        return self.policy.name if self.policy is not None else None

    @property
    def operator_name(self) -> str | None:
        return self.operator_policy.name if self.operator_policy is not None else None


class Source(NamedTuple):
    """Where a value that holds comes from: `argument`, `policy` or `operator policy`, and the
    policy's name."""

    kind: str
    name: str
    value: Any


class Setting(NamedTuple):
    """One thing that is set for an object: what holds, and what it overrules."""

    argument: str
    key: str | None
    value: Any
    source: Source
    overruled: list[Source]
    against: str | None = None
    """The argument that what was asked for cannot go with."""


class _OfVHost:
    """The policies of one vhost, and what its objects are under, by the `id`s of the two."""

    def __init__(self) -> None:
        self.ranked = {False: RankedPolicies(), True: RankedPolicies()}
        """By whether they are operator policies."""
        self.in_force: dict[tuple[int, int], InForce] = {}

    def __bool__(self) -> bool:
        return any(self.ranked.values())

    def forget(self, gone: Policy | None) -> None:
        """A policy is another one now, or none. What unchanged ones amount to stays the same
        object, so that their objects are left alone."""
        which = id(gone)
        for key in [key for key in self.in_force if which in key]:
            del self.in_force[key]


class Policies:
    """The policies and operator policies of all vhosts."""

    def __init__(
        self,
        files: SettingsFiles,
        most: int = DEFAULTS.policies,
        steps_most: int = DEFAULTS.policy_steps,
    ) -> None:
        self._files = files
        self.most = most
        """Policies of a vhost, and operator policies."""
        self.steps_most = steps_most
        """Of the patterns of these that one name is compared with, together."""
        self._vhosts: dict[str, _OfVHost] = {}
        """Those that have any."""

    # -- files -------------------------------------------------------------------------------------

    def load(self) -> None:
        """Reads the settings files. Raises SettingsError, one line, if one cannot be used."""
        self._vhosts = {}
        for operator, name in ((False, POLICIES_FILE), (True, OPERATOR_POLICIES_FILE)):
            where = self._files.path(name)
            for policy in self._files.load(name, list[Policy]) or []:
                whose = f"{where}: policy '{policy.name}' of vhost '{policy.vhost}'"
                ranked = self._of(policy.vhost).ranked[operator]
                if ranked.get(policy.name) is not None:
                    raise SettingsError(f"{whose} is there twice")
                try:
                    ranked.put(_checked(policy, operator, is_stored=True))
                except BadSetting as error:
                    raise SettingsError(f"{whose}: {error}") from error

    def _of(self, vhost: str) -> _OfVHost:
        found = self._vhosts.get(vhost)
        if found is None:
            found = self._vhosts[vhost] = _OfVHost()
        return found

    def _save(self, operator: bool) -> None:
        name = OPERATOR_POLICIES_FILE if operator else POLICIES_FILE
        self._files.put(name, self.all(operator=operator))

    # -- changes -----------------------------------------------------------------------------------

    @staticmethod
    def check(policy: Policy, *, operator: bool = False) -> Compiled:
        """Raises BadSetting with RabbitMQ's text for a policy that cannot be set."""
        compiled = _checked(policy, operator)
        upstreams = policy.definition.get(UPSTREAM_PATTERN)
        try:
            if upstreams:
                Pattern.sent(upstreams)
        except BadPattern as error:
            raise BadSetting(
                f"could not compile pattern {upstreams} to a regular expression. Error: {error}"
            ) from None
        try:
            check_together(policy.definition)
        except BadDefinition as error:
            raise BadSetting(str(error)) from None
        return compiled

    def put(self, policy: Policy, *, operator: bool = False) -> bool:
        """Sets a policy; True if it is new. Raises BadSetting with RabbitMQ's text."""
        compiled = self.check(policy, operator=operator)
        there = self._of(policy.vhost)
        ranked = there.ranked[operator]
        created = ranked.get(policy.name) is None
        if created and len(ranked) >= self.most:
            raise BadSetting(
                f"vhost '{policy.vhost}' has {self.most} policies, and no more are allowed "
                "(policies_max)"
            )
        self.check_steps(ranked.get(policy.name), ranked.steps, compiled)
        old = ranked.put(compiled)
        if old is not None:
            there.forget(old)
        self._save(operator)
        return created

    def steps(self, vhost: str, *, operator: bool = False) -> PatternSteps:
        """Of a vhost's policies; a copy, for `check_steps` of several that are to be put."""
        there = self._vhosts.get(vhost)
        return there.ranked[operator].steps.copy() if there is not None else PatternSteps()

    def check_steps(self, old: Policy | None, steps: PatternSteps, compiled: Compiled) -> None:
        """Raises BadSetting where names would be compared with too much. What is stored may be
        above the limit, which was higher then: it can still be changed, but for its pattern."""
        policy = compiled.policy
        if old is not None and old.pattern == policy.pattern:
            return
        most = steps.most_with(policy.name, compiled.pattern)
        if most > self.steps_most:
            raise BadSetting(
                f"vhost '{policy.vhost}' would have names that are compared with patterns of "
                f"{most} steps once compiled, and no more than {self.steps_most} are allowed "
                "(policy_steps_max): let patterns begin with ^ and letters or digits, so that "
                "other names are not compared with them, or use fewer or simpler ones"
            )

    def delete(self, vhost: str, name: str, *, operator: bool = False) -> None:
        """Removes a policy. Raises KeyError if there is none."""
        there = self._vhosts[vhost]
        there.forget(there.ranked[operator].remove(name))
        if not there:
            del self._vhosts[vhost]
        self._save(operator)

    def forget_vhost(self, vhost: str) -> Iterator[None]:
        """Removes the policies of a vhost that is deleted, at once; the steps that it returns free
        their memory, a part each."""
        gone = self._vhosts.pop(vhost, None)
        if gone is None:
            return iter(())
        for operator, ranked in gone.ranked.items():
            if ranked:
                self._save(operator)
        gone.in_force.clear()
        return itertools.chain.from_iterable(each.freed() for each in gone.ranked.values())

    # -- questions ---------------------------------------------------------------------------------

    def all(self, *, operator: bool = False) -> list[Policy]:
        """Every policy, or every operator policy; those of a vhost in the order they were made."""
        return [each for there in self._vhosts.values() for each in there.ranked[operator]]

    def get(self, vhost: str, name: str, *, operator: bool = False) -> Policy | None:
        there = self._vhosts.get(vhost)
        return there.ranked[operator].get(name) if there is not None else None

    def how_many(self, vhost: str, *, operator: bool = False) -> int:
        """How many a vhost has."""
        there = self._vhosts.get(vhost)
        return len(there.ranked[operator]) if there is not None else 0

    def of(self, vhost: str, owner: str, name: str, type: str) -> InForce | None:
        """What an object is under; None without any policy. `owner` is queue or exchange."""
        there = self._vhosts.get(vhost)
        if there is None:
            return None
        policy = there.ranked[False].first(owner, name, type)
        operator_policy = there.ranked[True].first(owner, name, type)
        if policy is None and operator_policy is None:
            return None
        key = id(policy) if policy else 0, id(operator_policy) if operator_policy else 0
        found = there.in_force.get(key)
        if found is None:
            found = there.in_force[key] = InForce(policy, operator_policy)
        return found

    def count(self, policy: Policy) -> dict[str, int]:
        """How many queues and exchanges are under a policy or operator policy now."""
        return self.counts().get(id(policy), {"queue": 0, "exchange": 0})

    def counts(self) -> dict[int, dict[str, int]]:
        """The same of all that are in force, by `id`."""
        found: dict[int, dict[str, int]] = {}
        for each in (each for there in self._vhosts.values() for each in there.in_force.values()):
            for policy in (each.policy, each.operator_policy):
                if policy is not None:
                    under = found.setdefault(id(policy), {"queue": 0, "exchange": 0})
                    under["queue"] += each.count["queue"]
                    under["exchange"] += each.count["exchange"]
        return found


def _checked(policy: Policy, operator: bool, *, is_stored: bool = False) -> Compiled:
    """Raises BadSetting for a policy that cannot be, in RabbitMQ's words; a stored one is not
    refused because its pattern takes long to match."""
    if not policy.name:
        raise BadSetting("policy name is empty")
    if policy.apply_to not in APPLY_TO:
        raise BadSetting(
            f"apply-to '{policy.apply_to}' unrecognised; should be one of: "
            + ", ".join(f"'{each}'" for each in APPLY_TO)
        )
    if not -(2**31) <= policy.priority < 2**31:
        raise BadSetting(f"priority should be a number, actually was {term(policy.priority)}")
    try:
        # An empty pattern is found in every name.
        text = policy.pattern or "(?:)"
        pattern = Pattern(text) if is_stored else Pattern.sent(text)
    except BadPattern as error:
        raise BadSetting(f"pattern should be regular expression but is invalid: {error}") from None
    try:
        check(policy.definition, operator=operator)
    except BadDefinition as error:
        raise BadSetting(str(error)) from None
    return Compiled(policy, pattern)


def merged(policy: Policy | None, operator_policy: Policy | None) -> dict[str, Any]:
    """The definitions of both as one: the stricter number, otherwise the operator's value."""
    if operator_policy is None:
        return policy.definition if policy is not None else {}
    if policy is None:
        return operator_policy.definition
    definition = {**policy.definition, **operator_policy.definition}
    for key in policy.definition.keys() & operator_policy.definition.keys():
        if KEYS[key].rule == "lower":
            definition[key] = lower(key, policy.definition[key], operator_policy.definition[key])
    return definition


def move(owner: str, before: InForce | None, after: InForce | None) -> None:
    """Counts an object of one kind that came under other policies, or came or went."""
    if before is not None:
        before.count[owner] -= 1
    if after is not None:
        after.count[owner] += 1


def effective(
    owner: str, arguments: Mapping[str, Any], in_force: InForce | None
) -> Mapping[str, Any]:
    """The arguments as if the declaration had made them, under their x- names. What a queue's type
    has no use for is left out."""
    if in_force is None:
        return arguments
    found = dict(arguments)
    kind = queue_types.of(arguments) if owner == "queue" else None
    for key, value in in_force.definition.items():
        row = KEYS[key]
        if row.rule in ("none", "policy") or row.owner != owner:
            continue
        name = row.argument.name
        if kind is not None and not kind.uses(name):
            continue
        own = _own(name, arguments)
        if own is None:
            found[name] = value
        elif row.rule == "lower":
            found[name] = lower(key, own, value)
    if owner == "queue" and against_lean(found) is not None:
        # Together no single one could be declared so; nothing is lost this way.
        found["x-confirm-on"] = "ack"
    return found


def settings(
    owner: str, arguments: Mapping[str, Any], in_force: InForce | None
) -> Iterable[Setting]:
    """What holds for an object, each with its source and what it overrules."""
    if in_force is None:
        for name, value in arguments.items():
            yield Setting(name, None, value, Source("argument", "", value), [])
        return
    holding = effective(owner, arguments, in_force)
    by_argument = {
        row.argument.name: row for row in KEYS.values() if row.rule in ("lower", "argument")
    }
    for name, value in holding.items():
        row = by_argument.get(name)
        sources = []
        if row is not None and row.owner == owner:
            for kind, policy in (
                ("policy", in_force.policy),
                ("operator policy", in_force.operator_policy),
            ):
                if policy is not None and row.name in policy.definition:
                    sources.append(Source(kind, policy.name, policy.definition[row.name]))
        if name in arguments:
            sources.insert(0, Source("argument", "", arguments[name]))
        # Of equals the declaration's own comes first, then the operator's word before the policy's.
        ranked = sources[:1] + sources[:0:-1]
        source = next((each for each in ranked if each.value == value), sources[0])
        against = None
        if source.value != value:
            against = against_lean({**holding, name: source.value})
        overruled = [each for each in sources if each is not source or against is not None]
        yield Setting(name, row.name if row else None, value, source, overruled, against)
    for name, value in in_force.definition.items():
        if KEYS[name].rule == "policy":
            yield _set_apart(name, value, in_force)


def _set_apart(name: str, value: Any, in_force: InForce) -> Setting:
    """A key that no argument stands for."""
    sources = [
        Source(kind, policy.name, policy.definition[name])
        for kind, policy in (
            ("operator policy", in_force.operator_policy),
            ("policy", in_force.policy),
        )
        if policy is not None and name in policy.definition
    ]
    return Setting(name, name, value, sources[0], sources[1:])


def _own(name: str, arguments: Mapping[str, Any]) -> Any:
    value = arguments.get(name)
    if value is None and name == "alternate-exchange":
        return arguments.get("x-alternate-exchange")
    return value

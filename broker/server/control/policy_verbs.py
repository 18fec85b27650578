"""Verbs of policies and operator policies."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Any

from broker.access import BadSetting
from broker.access.patterns import BadPattern, Pattern
from broker.kernel.through import Through
from broker.schema.control_schema import (
    OperatorPolicyDelete,
    OperatorPolicyPut,
    PolicyDelete,
    PolicyKeys,
    PolicyPreview,
    PolicyPut,
)
from broker.schema.policy_keys import KEYS
from broker.server.control.requests import (
    Request,
    RequestError,
    bad_request,
    handles,
    not_found,
)
from broker.server.pace import Pace
from broker.vhosts.policies import Policy

if TYPE_CHECKING:
    from broker.server.app import Broker

_NAMES_SHOWN = 5


@handles("policy.put")
async def policy_put(request: Request[PolicyPut]) -> Any:
    return await _put(request, operator=False)


@handles("operator-policy.put")
async def operator_policy_put(request: Request[OperatorPolicyPut]) -> Any:
    return await _put(request, operator=True)


@handles("policy.delete")
async def policy_delete(request: Request[PolicyDelete]) -> Any:
    return await _delete(request, operator=False)


@handles("operator-policy.delete")
async def operator_policy_delete(request: Request[OperatorPolicyDelete]) -> Any:
    return await _delete(request, operator=True)


async def _put(request: Request[PolicyPut] | Request[OperatorPolicyPut], operator: bool) -> Any:
    args = request.args
    policy = Policy(
        args.vhost, args.name, args.pattern, args.definition, args.apply_to, args.priority
    )
    created = put_policy(request.broker, policy, operator=operator)
    is_applied = await request.broker.policy_sweep.over([args.vhost])
    return {"created": created, "is_applied": is_applied}


async def _delete(
    request: Request[PolicyDelete] | Request[OperatorPolicyDelete], operator: bool
) -> Any:
    broker, args = request.broker, request.args
    try:
        broker.policies.delete(args.vhost, args.name, operator=operator)
    except KeyError:
        raise not_found("Not Found") from None
    _changed(broker, args.vhost, args.name, operator)
    return {"is_applied": await broker.policy_sweep.over([args.vhost])}


def put_policy(broker: Broker, policy: Policy, *, operator: bool) -> bool:
    """Sets a policy and begins to apply it; True if it is new. Raises RequestError 400."""
    try:
        created: bool = broker.policies.put(policy, operator=operator)
    except BadSetting as error:
        raise _invalid(str(error)) from None
    _changed(broker, policy.vhost, policy.name, operator)
    return created


def _changed(broker: Broker, vhost: str, name: str, operator: bool) -> None:
    broker.policy_sweep.begin(vhost)
    broker.emit("policy.changed", {"vhost": vhost, "name": name, "operator": operator})


@handles("policy.keys")
async def policy_keys(request: Request[PolicyKeys]) -> Any:
    return [
        {
            "name": row.name,
            "argument": row.argument.name if row.rule in ("lower", "argument") else None,
            "owner": row.owner,
            "kind": row.argument.kind,
            "choices": [one for one in row.argument.choices if one not in row.argument.unbuilt],
            "least": row.argument.least,
            "most": row.argument.most,
            "unit": row.unit,
            "text": row.text,
            "operator": row.operator,
        }
        for row in KEYS.values()
        if row.argument.built
    ]


@handles("policy.preview")
async def policy_preview(request: Request[PolicyPreview]) -> Any:
    """Looks at every name, in steps."""
    args = request.args
    vhost = request.caller.vhost(args.vhost)
    try:
        pattern = Pattern.sent(args.pattern or "(?:)")
    except BadPattern as error:
        raise _invalid(f"pattern should be regular expression but is invalid: {error}") from None
    policy = Policy(args.vhost, "preview", args.pattern, {}, args.apply_to)
    pace = Pace()
    found: dict[str, Any] = {}
    all_things: tuple[tuple[str, Through[Any]], ...] = (
        ("queue", Through(vhost.queues.values())),
        ("exchange", Through(vhost.exchanges.values())),
    )
    for owner, things in all_things:
        count = 0
        names: list[str] = []
        for thing in things:
            if thing.name and policy.fits(owner, thing.type) and pattern.matches(thing.name):
                count += 1
                if len(names) < _NAMES_SHOWN or thing.name < names[-1]:
                    bisect.insort(names, thing.name)
                    del names[_NAMES_SHOWN:]
            await pace()
        found[f"{owner}s"] = count
        found[f"{owner}_names"] = names
    return found


def _invalid(reason: str) -> RequestError:
    return bad_request(f"Validation failed\n\n{reason}\n")

"""One policy or operator policy: a form made from the table of keys, and what it would reach."""

from __future__ import annotations

import json
from typing import Any

from django.http import Http404, HttpRequest, HttpResponseBase, JsonResponse
from django.shortcuts import render

from broker.schema.upstream_keys import POLICY_KEYS
from frontend import addresses
from frontend.arguments import CHOICES, number
from frontend.asking import FormError, arguments_table, ask, done, is_there, names_of, reason_of
from management.broker_client import BrokerError

APPLY_TO = (
    ("all", "queues and exchanges"),
    ("queues", "queues of every type"),
    ("exchanges", "exchanges"),
    ("classic_queues", "classic queues"),
    ("quorum_queues", "quorum queues"),
    ("streams", "streams"),
)
OWNERS = {"queue": "For queues", "exchange": "For exchanges", "both": "Federation"}


async def policy(request: HttpRequest) -> HttpResponseBase:
    """GET: the form, empty without `name`. POST `action`: save, delete."""
    operator = bool(request.GET.get("operator"))
    _check_may(request, operator)
    vhost, name = request.GET.get("vhost", "/"), request.GET.get("name", "")
    keys = await ask(request, "policy.keys")
    if operator:
        keys = [row for row in keys if row["operator"]]
    facts: dict[str, Any] = {"section": "policies", "operator": operator, "status": 200}
    shown: dict[str, Any] = {"pattern": "", "apply-to": "all", "priority": 0, "definition": {}}
    if request.method == "POST":
        try:
            return await _act(request, operator, vhost, name, keys)
        except (BrokerError, FormError) as error:
            facts |= {"error": reason_of(error).removeprefix("Validation failed\n\n")}
            facts["status"] = 400
    if name:
        noun = "operator-policies" if operator else "policies"
        shown = await ask(request, "item", noun=noun, vhost=vhost, name=name)
    fields = request.POST if facts["status"] == 400 else {}
    in_form = {row["name"] for row in keys if _is_in_form(row)}
    others = {key: value for key, value in shown["definition"].items() if key not in in_form}
    facts |= {
        "policy": shown,
        "name": name,
        "vhost": vhost,
        "form": fields,
        "vhosts": await names_of(request, "vhosts"),
        "apply_to": APPLY_TO,
        "pattern": fields.get("pattern", shown["pattern"]),
        "priority": fields.get("priority", shown["priority"]),
        "chosen": fields.get("apply_to", shown["apply-to"]),
        "groups": _groups(keys, shown["definition"], fields),
        "others": fields.get("others", json.dumps(others) if others else ""),
        "other_keys": ", ".join(row["name"] for row in keys if not _is_in_form(row)),
    }
    return render(request, "policy.html", facts, status=facts["status"])


async def preview(request: HttpRequest) -> HttpResponseBase:
    """What `?vhost=&pattern=&apply_to=` would reach: {text, names} or {refusal}."""
    try:
        found = await ask(
            request,
            "policy.preview",
            vhost=request.GET.get("vhost", "/"),
            pattern=request.GET.get("pattern", "")[:4096],
            apply_to=request.GET.get("apply_to", "all"),
        )
    except BrokerError as error:
        return JsonResponse({"refusal": reason_of(error).removeprefix("Validation failed\n\n")})
    return JsonResponse(found)


def _check_may(request: HttpRequest, operator: bool) -> None:
    user = request.user
    may = user.is_administrator if operator else user.is_policymaker
    if not may:
        what = "operator policies: that takes the tag administrator" if operator else "policies"
        raise BrokerError(401, "not_authorised", f"You may not change {what}.")


def _groups(
    keys: list[dict[str, Any]], definition: dict[str, Any], fields: Any
) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """The fields of the form: (owner, heading, rows with `value` as text)."""
    found = []
    for owner, heading in OWNERS.items():
        rows = [
            row
            | {
                "value": fields.get(row["name"], _text(definition.get(row["name"]))),
                "choices": [(one, labels.get(one, one)) for one in row["choices"]],
            }
            for row in keys
            if _is_in_form(row) and _owner(row) == owner
            for labels in (CHOICES.get(row["argument"], {}),)
        ]
        if rows:
            found.append((owner, heading, rows))
    return found


def _is_in_form(row: dict[str, Any]) -> bool:
    """Whether a key has a field: it sets an argument, or names upstreams."""
    return bool(row["argument"]) or row["name"] in POLICY_KEYS


def _owner(row: dict[str, Any]) -> str:
    return "both" if row["name"] in POLICY_KEYS else str(row["owner"])


def _text(value: Any) -> str:
    if value is None:
        return ""
    return json.dumps(value) if isinstance(value, bool) else str(value)


async def _act(
    request: HttpRequest, operator: bool, vhost: str, name: str, keys: list[dict[str, Any]]
) -> HttpResponseBase:
    fields = request.POST
    noun = "operator-policy" if operator else "policy"
    label = noun.replace("-", " ")
    if fields.get("action") == "delete":
        if not name:
            raise Http404
        await ask(request, f"{noun}.delete", vhost=vhost, name=name)
        return done(request, "/policies", f"The {label} is removed from all it applied to.")
    new = not name
    if new:
        vhost, name = fields.get("vhost", "/"), fields.get("name", "").strip()
        if not name:
            raise FormError("A policy needs a name.")
        rows = "operator-policies" if operator else "policies"
        if await is_there(request, rows, vhost=vhost, name=name):
            article = "an" if operator else "a"
            raise FormError(f"There is {article} {label} '{name}' in this virtual host already.")
    definition = arguments_table(fields, "others")
    for row in keys:
        text = fields.get(row["name"], "").strip()
        if _is_in_form(row) and text:
            definition[row["name"]] = _value(row, text)
    if not definition:
        raise FormError("A policy has to set something: fill in at least one of its fields.")
    priority = fields.get("priority", "").strip() or "0"
    await ask(
        request,
        f"{noun}.put",
        vhost=vhost,
        name=name,
        pattern=fields.get("pattern", ""),
        apply_to=fields.get("apply_to", "all"),
        priority=number("priority", priority),
        definition=definition,
    )
    said = "is set" if new else "is changed"
    address = "/policies" if new else addresses.policy(vhost, name, operator)
    return done(request, address, f"The {label} {said} and has reached all it applies to.")


def _value(row: dict[str, Any], text: str) -> Any:
    if row["kind"] == "integer":
        return number(row["name"], text)
    return text == "true" if row["kind"] == "boolean" else text

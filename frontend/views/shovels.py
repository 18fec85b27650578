"""The list of shovels, and the page of one: a form made from the table of keys, its state, and a
trial that says at which step a connection fails."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render

from broker.schema.shovel_keys import GROUPS, KEYS, OLDER, ShovelKey
from frontend import addresses
from frontend.asking import FormError, ask, done, is_fragment, names_of, reason_of, typed_json
from management.broker_client import BrokerError

SHOWN_MOST = 500
STATES = {"error": "bad", "stopped": "bad", "blocked": "warn", "running": "good"}
"""The colour of a state; the others have none."""
ACTS = {"pause": "is paused", "resume": "runs again", "restart": "starts again"}


async def shovels(request: HttpRequest) -> HttpResponseBase:
    """GET: the list; a part of it for htmx, which asks every two seconds."""
    user = request.user
    if not (user.is_policymaker or user.is_monitoring):
        raise BrokerError(401, "not_authorised", "Shovels take the tag policymaker or monitoring.")
    vhost = request.GET.get("vhost", "")
    rows = await ask(request, "shovel.list", **({"vhost": vhost} if vhost else {}))
    facts = {
        "section": "shovels",
        "shovels": [_shown(row) for row in rows[:SHOWN_MOST]],
        "more": max(0, len(rows) - SHOWN_MOST),
        "here": request.get_full_path(),
    }
    return render(request, "shovels/rows.html" if is_fragment(request) else "shovels.html", facts)


async def shovel(request: HttpRequest) -> HttpResponseBase:
    """GET: state, history and the form, which is empty without `name`; only the state for htmx.
    POST `action`: save, test, pause, resume, restart, delete. Monitoring sees one and changes
    none."""
    user, vhost, name = request.user, request.GET.get("vhost", "/"), request.GET.get("name", "")
    is_change = request.method == "POST" or not name
    if not (user.is_policymaker or (user.is_monitoring and not is_change)):
        raise BrokerError(401, "not_authorised", "Only policymakers may make and change shovels.")
    facts: dict[str, Any] = {"section": "shovels", "status": 200, "name": name, "vhost": vhost}
    filled: Mapping[str, str] = {}
    if request.method == "POST":
        filled = request.POST
        try:
            if filled.get("action") != "test":
                return await _act(request, vhost, name)
            facts["steps"] = await _tried(request, vhost, name)
        except (BrokerError, FormError) as error:
            facts["error"] = reason_of(error).removeprefix("Validation failed\n\n").strip()
            facts["status"] = 400
    row: dict[str, Any] | None = None
    if name:
        found = await ask(request, "shovel.list", vhost=vhost, name=name)
        if not found:
            gone = (
                "There is no such shovel. It was removed, or it has moved all that it was to move."
            )
            raise BrokerError(404, "not_found", gone)
        row = _shown(found[0])
    if is_fragment(request):
        shown = {"shovel": row, "here": addresses.shovel(vhost, name)}
        return render(request, "shovels/state.html", shown)
    definition = row["definition"] if row is not None else {}
    groups = _groups(definition, filled)
    facts |= {
        "shovel": row,
        "here": addresses.shovel(vhost, name),
        "form": filled,
        "vhosts": await names_of(request, "vhosts"),
        "groups": groups,
        "is_web": _is_web(definition, filled),
    }
    return render(request, "shovel.html", facts, status=facts["status"])


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """A row with what the templates need besides."""
    ends = {end: row.get(f"{end}_queue", row.get(f"{end}_exchange")) for end in ("src", "dest")}
    return row | {
        "tone": STATES.get(row["state"], "idle"),
        "from": ends["src"],
        "to": ends["dest"],
        "from_place": _place(row["src_uri"]),
        "to_place": _place(row["dest_uri"]),
        "has_target": ends["dest"] is not None,
        "is_web": row["dest_protocol"] in ("http", "https"),
        "address": addresses.shovel(row["vhost"], row["name"]),
        "history": [
            event | {"tone": STATES.get(event["state"], "idle")} for event in row["history"][::-1]
        ],
    }


def _place(uri: str) -> str:
    """Where a URI leads, in words where that is here."""
    if uri.startswith("amqp:///") or uri == "amqp://":
        vhost = unquote(uri.removeprefix("amqp://").removeprefix("/"))
        return f"this broker, virtual host {vhost}" if vhost else "this broker"
    return uri


def _groups(
    definition: dict[str, Any], filled: Mapping[str, str]
) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """The fields of the form: (group, heading, rows with `value` as text)."""
    given = {OLDER.get(key, key): value for key, value in definition.items()}
    return [
        (
            group,
            heading,
            [
                {
                    "name": key.name,
                    "label": key.label,
                    "kind": key.kind,
                    "text": key.text,
                    "choices": key.choices,
                    "default": "" if key.default is None else _text(key.default),
                    "is_required": key.name in ("src-uri", "dest-uri"),
                    "value": filled.get(key.name, _text(given.get(key.name))),
                }
                for key in KEYS.values()
                if key.group == group
            ],
        )
        for group, heading in GROUPS.items()
    ]


def _is_web(definition: dict[str, Any], filled: Mapping[str, str]) -> bool:
    """Whether messages go out over HTTP, so that its keys are of use."""
    text = filled.get("dest-uri", _text(definition.get("dest-uri")))
    return text.lstrip().startswith(("http:", "https:"))


def _text(value: Any) -> str:
    """A value as the form holds it; several URIs are lines."""
    if value is None:
        return ""
    if isinstance(value, list):
        return "\n".join(str(each) for each in value)
    return json.dumps(value) if isinstance(value, bool | dict) else str(value)


def _definition(fields: Mapping[str, str], stored: Mapping[str, Any]) -> dict[str, Any]:
    """What the form says, with what of the stored definition the form does not show. Raises
    FormError."""
    found = {key: value for key, value in stored.items() if key not in KEYS and key not in OLDER}
    for key in KEYS.values():
        text = fields.get(key.name, "")
        if text.strip():
            # A name may begin or end with a space.
            found[key.name] = _value(key, text if key.kind == "text" else text.strip())
        elif stored.get(key.name) == "":
            found[key.name] = ""  # as the default exchange is called
    return found


def _value(key: ShovelKey, text: str) -> Any:
    if key.kind == "uris":
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[0] if len(lines) == 1 else lines
    if key.kind == "boolean":
        return text == "true"
    if key.kind == "number" or (key.kind == "delete-after" and text.isdecimal()):
        if not (text.isascii() and text.isdigit() and len(text) < 17):
            raise FormError(f"{key.name} must be a whole number.")
        return int(text)
    if key.kind in ("table", "headers"):
        value = typed_json(text, f"{key.name} is")
        if not isinstance(value, dict):
            raise FormError(f'{key.name} must be a JSON object, for example {{"x-priority": 1}}.')
        return value
    return text


async def _tried(request: HttpRequest, vhost: str, name: str) -> list[dict[str, Any]]:
    fields = request.POST
    stored = await _stored(request, vhost, name)
    vhost, name = (vhost, name) if name else (fields.get("vhost", "/"), fields.get("name", ""))
    steps: list[dict[str, Any]] = await ask(
        request, "shovel.test", vhost=vhost, name=name or "new", value=_definition(fields, stored)
    )
    return steps


async def _stored(request: HttpRequest, vhost: str, name: str) -> dict[str, Any]:
    """The definition of a shovel as it is, with stars for its secrets; empty for a new one."""
    rows = await ask(request, "shovel.list", vhost=vhost, name=name) if name else []
    return rows[0]["definition"] if rows else {}


async def _act(request: HttpRequest, vhost: str, name: str) -> HttpResponseBase:
    fields = request.POST
    action = fields.get("action", "save")
    if action in ACTS and name:
        await ask(request, f"shovel.{action}", vhost=vhost, name=name)
        address = "/shovels" if fields.get("from") == "list" else addresses.shovel(vhost, name)
        return done(request, address, f"The shovel {ACTS[action]}.")
    if action == "delete" and name:
        await ask(request, "parameter.delete", component="shovel", vhost=vhost, name=name)
        return done(request, "/shovels", "The shovel is removed. No message is lost by that.")
    stored = await _stored(request, vhost, name)
    new = not name
    if new:
        vhost, name = fields.get("vhost", "/"), fields.get("name", "").strip()
        if not name:
            raise FormError("A shovel needs a name.")
        if await ask(request, "shovel.list", vhost=vhost, name=name):
            raise FormError(f"There is a shovel '{name}' in this virtual host already.")
    value = _definition(fields, stored)
    await ask(request, "parameter.put", component="shovel", vhost=vhost, name=name, value=value)
    return done(
        request,
        addresses.shovel(vhost, name),
        "The shovel is saved and starts." if new else "The shovel is saved and starts again.",
    )

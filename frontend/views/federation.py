"""Federation: links with their states, upstreams and sets, and the form of an upstream, which is
made from the table of keys."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render

from broker.schema.upstream_keys import GROUPS, KEYS, UPSTREAM, UPSTREAM_SET, UpstreamKey
from frontend import addresses
from frontend.asking import FormError, ask, done, is_fragment, names_of, reason_of, typed_json
from management.broker_client import BrokerError

SHOWN_MOST = 500
TONES = {"error": "bad", "stopped": "bad", "blocked": "warn", "running": "good"}
"""The colour of a state; the others have none."""
KINDS = {UPSTREAM: "upstream", UPSTREAM_SET: "set"}


async def federation(request: HttpRequest) -> HttpResponseBase:
    """GET: links, upstreams and sets; the links alone for htmx, which asks every two seconds. POST
    `action` restart with `id` and `vhost` of a link."""
    _check_may(request)
    if request.method == "POST":
        fields = request.POST
        named = {"vhost": fields.get("vhost", "/"), "id": fields.get("id", "")}
        await ask(request, "federation.restart", **named)
        return done(request, "/federation", "The link begins anew.")
    rows = await ask(request, "federation.list")
    facts: dict[str, Any] = {
        "section": "federation",
        "links": [_shown(row) for row in rows[:SHOWN_MOST]],
        "more": max(0, len(rows) - SHOWN_MOST),
    }
    if is_fragment(request):
        return render(request, "federation/links.html", facts)
    upstreams = await ask(request, "federation.upstreams")
    facts["upstreams"] = [_listed(row) for row in upstreams[:SHOWN_MOST]]
    return render(request, "federation.html", facts)


async def federation_link(request: HttpRequest) -> HttpResponseBase:
    """GET: state, counts and history of the link with `vhost` and `id`; a part of it for htmx. POST
    restarts it."""
    _check_may(request)
    named = {"vhost": request.GET.get("vhost", "/"), "id": request.GET.get("id", "")}
    if request.method == "POST":
        await ask(request, "federation.restart", **named)
        return done(request, addresses.federation_link(**named), "The link begins anew.")
    rows = await ask(request, "federation.list", **named)
    if not rows:
        gone = (
            "There is no such link. Its policy or its upstream was removed or names it no longer."
        )
        raise BrokerError(404, "not_found", gone)
    history = [
        event | {"tone": TONES.get(event["state"], "idle")} for event in rows[0]["history"][::-1]
    ]
    facts = {"section": "federation", "row": _shown(rows[0]) | {"history": history}}
    return render(request, "federation/link.html" if is_fragment(request) else "link.html", facts)


async def upstream(request: HttpRequest) -> HttpResponseBase:
    """GET: the form of an upstream, or with `set=1` of a set; empty without `name`. POST `action`:
    save, test, delete."""
    user = request.user
    if not user.is_policymaker:
        raise BrokerError(401, "not_authorised", "Only policymakers may make and change upstreams.")
    query = request.GET
    vhost, name = query.get("vhost", "/"), query.get("name", "")
    component = UPSTREAM_SET if query.get("set") else UPSTREAM
    facts: dict[str, Any] = {"section": "federation", "status": 200, "name": name, "vhost": vhost}
    filled: Mapping[str, str] = {}
    if request.method == "POST":
        filled = request.POST
        try:
            if filled.get("action") != "test":
                return await _act(request, component, vhost, name)
            facts["steps"] = await _tried(request, vhost, name)
        except (BrokerError, FormError) as error:
            facts["error"] = reason_of(error).removeprefix("Validation failed\n\n").strip()
            facts["status"] = 400
    value = await _stored(request, component, vhost, name) if name else None
    if name and value is None:
        raise Http404
    facts |= {
        "kind": KINDS[component],
        "here": addresses.upstream(vhost, name, is_set=component == UPSTREAM_SET),
        "form": filled,
        "vhosts": await names_of(request, "vhosts"),
        "groups": _groups(value or {}, filled) if component == UPSTREAM else [],
        "entries": filled.get("entries", json.dumps(value, indent=1) if value else ""),
    }
    return render(request, "upstream.html", facts, status=facts["status"])


def _check_may(request: HttpRequest) -> None:
    user = request.user
    if not (user.is_policymaker or (user.is_monitoring and request.method == "GET")):
        reason = "Federation takes the tag policymaker or monitoring."
        raise BrokerError(401, "not_authorised", reason)


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """A link with what the template needs besides."""
    kind = row["type"]
    address = addresses.exchange if kind == "exchange" else addresses.queue
    return row | {
        "tone": TONES.get(row["state"], "idle"),
        "name": row[kind],
        "object": row[f"upstream_{kind}"],
        "here": addresses.federation_link(row["vhost"], row["id"]),
        "address": address(row["vhost"], row[kind]),
        "upstream_address": addresses.upstream(row["vhost"], row["upstream"]),
    }


def _listed(row: dict[str, Any]) -> dict[str, Any]:
    is_set = row["component"] == UPSTREAM_SET
    value = row["definition"]
    shown = ", ".join(each.get("upstream", "") for each in value) if is_set else value.get("uri")
    return row | {
        "is_set": is_set,
        "shown": ", ".join(shown) if isinstance(shown, list) else shown,
        "address": addresses.upstream(row["vhost"], row["name"], is_set=is_set),
    }


def _groups(
    definition: dict[str, Any], filled: Mapping[str, str]
) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """The fields of the form: (group, heading, rows with `value` as text)."""
    return [
        (
            group,
            heading,
            [
                key._asdict()
                | {
                    "default": "" if key.default is None else _text(key.default),
                    "value": filled.get(key.name, _text(definition.get(key.name))),
                }
                for key in KEYS.values()
                if key.group == group
            ],
        )
        for group, heading in GROUPS.items()
    ]


def _text(value: Any) -> str:
    """A value as the form holds it; several URIs are lines."""
    if value is None:
        return ""
    if isinstance(value, list):
        return "\n".join(str(each) for each in value)
    return json.dumps(value) if isinstance(value, bool) else str(value)


def _value(key: UpstreamKey, text: str) -> Any:
    """Raises FormError."""
    if key.kind == "uris":
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[0] if len(lines) == 1 else lines
    if key.kind == "boolean":
        return text == "true"
    if key.kind == "number":
        if not (text.isascii() and text.isdigit() and len(text) < 17):
            raise FormError(f"{key.name} must be a whole number.")
        return int(text)
    return text


async def _stored(request: HttpRequest, component: str, vhost: str, name: str) -> Any:
    """A definition as it is, with stars for its secrets; None if there is none."""
    rows = await ask(request, "federation.upstreams", vhost=vhost, name=name)
    found = [row["definition"] for row in rows if row["component"] == component]
    return found[0] if found else None


def _definition(fields: Mapping[str, str]) -> dict[str, Any]:
    """What the form of an upstream says. Raises FormError."""
    texts = {key: fields.get(key.name, "") for key in KEYS.values()}
    return {
        key.name: _value(key, text if key.kind == "text" else text.strip())
        for key, text in texts.items()
        if text.strip()
    }


async def _tried(request: HttpRequest, vhost: str, name: str) -> list[dict[str, Any]]:
    fields = request.POST
    vhost, name = (vhost, name) if name else (fields.get("vhost", "/"), fields.get("name", ""))
    steps: list[dict[str, Any]] = await ask(
        request, "federation.test", vhost=vhost, name=name or "new", value=_definition(fields)
    )
    return steps


async def _act(request: HttpRequest, component: str, vhost: str, name: str) -> HttpResponseBase:
    fields, kind = request.POST, KINDS[component]
    named: dict[str, Any] = {"component": component, "vhost": vhost, "name": name}
    if fields.get("action") == "delete" and name:
        await ask(request, "parameter.delete", **named)
        return done(request, "/federation", f"The {kind} is removed, and its links end.")
    if not name:
        named |= {"vhost": fields.get("vhost", "/"), "name": fields.get("name", "").strip()}
        if not named["name"]:
            raise FormError(f"The {kind} needs a name.")
        if await _stored(request, **named) is not None:
            raise FormError(f"There is a {kind} '{named['name']}' in this virtual host already.")
    if component == UPSTREAM_SET:
        value = typed_json(fields.get("entries", ""), "The entries are")
    else:
        value = _definition(fields)
    await ask(request, "parameter.put", **named, value=value)
    return done(request, "/federation", f"The {kind} is saved; links begin where policies name it.")

"""Definitions: download them for this broker or another one, and import a file."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

from django.http import HttpRequest, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import render

from frontend.asking import FormError, ask, names_of, reason_of
from management.broker_client import BrokerError

TARGETS = (
    ("", "Leveret"),
    ("rabbitmq", "RabbitMQ, newest (4)"),
    ("rabbitmq-3", "RabbitMQ 3"),
    ("lavinmq", "LavinMQ"),
)
ROWS_SHOWN = 500

# What names an object beside its virtual host, in the order of reading.
_NAMING = ("component", "name", "user", "exchange", "source", "destination", "routing_key")


async def definitions(request: HttpRequest) -> HttpResponseBase:
    """GET: the forms, with `for` also what that broker cannot read. POST: import or check."""
    # Asked first: only an administrator may use any of this.
    await ask(request, "list", noun="users", page=1, page_size=1)
    facts: dict[str, Any] = {
        "section": "definitions",
        "vhosts": await names_of(request, "vhosts"),
        "targets": TARGETS,
        "chosen": {name: request.GET.get(name, "") for name in ("for", "vhost", "secrets")},
    }
    status = 200
    if request.method == "POST":
        facts["chosen"] = {"vhost": request.POST.get("vhost", "")}
        try:
            facts |= await _import(request)
        except (BrokerError, FormError) as error:
            facts["refusal"] = reason_of(error)
            status = 400
    elif request.GET.get("action") == "download":
        return _download(request)
    elif request.GET.get("action") == "look":
        facts |= await _omitted(request)
    return render(request, "definitions.html", facts, status=status)


def _download(request: HttpRequest) -> HttpResponseBase:
    vhost = request.GET.get("vhost", "")
    where = "/api/definitions" + (f"/{quote(vhost, safe='')}" if vhost else "")
    query = {name: request.GET[name] for name in ("for", "secrets") if request.GET.get(name)}
    return HttpResponseRedirect(f"{where}?{urlencode({**query, 'download': 'definitions.json'})}")


async def _omitted(request: HttpRequest) -> dict[str, Any]:
    given: dict[str, Any] = {}
    if request.GET.get("for"):
        given["target"] = request.GET["for"]
    if request.GET.get("vhost"):
        given["vhost"] = request.GET["vhost"]
    secrets = request.GET.get("secrets") == "true"
    told = await ask(request, "definitions.export", dry_run=True, secrets=secrets, **given)
    return {"told": told, "omitted": _shown(told["omitted"])}


async def _import(request: HttpRequest) -> dict[str, Any]:
    file = request.FILES.get("file")
    if file is None:
        raise FormError("Choose a definitions file first.")
    vhost = request.POST.get("vhost", "")
    answer = await ask(
        request,
        "definitions.import",
        definitions=file.read(),
        dry_run=request.POST.get("action") == "check",
        **({"vhost": vhost} if vhost else {}),
    )
    counts = answer["counts"].values()
    return {
        "answer": answer,
        "file": file.name,
        "created": sum(one["created"] for one in counts),
        "changed": sum(one["changed"] for one in counts),
        "unchanged": sum(one["unchanged"] for one in counts),
        "left_out": _shown(answer["left_out"]),
        "inactive": _shown(answer["inactive"]),
        "difference": _shown(answer.get("difference", [])),
    }


def _shown(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The first rows as the page shows them, and how many more there are."""
    shown = []
    for row in rows[:ROWS_SHOWN]:
        names = [str(row[name]) for name in _NAMING if row.get(name)]
        shown.append(
            {
                "kind": row["section"].replace("_", " "),
                "vhost": row.get("vhost"),
                "name": " → ".join(names),
                "part": row.get("part", ""),
                "reason": row.get("reason", ""),
                "action": row.get("action", ""),
                "before": _brief(row.get("before")),
                "after": _brief(row.get("after")),
            }
        )
    return {"rows": shown, "count": len(rows), "more": max(0, len(rows) - ROWS_SHOWN)}


def _brief(values: dict[str, Any] | None) -> dict[str, Any] | None:
    """Without the text of password hashes, which tells a reader nothing."""
    if values is None or not values.get("password_hash"):
        return values
    return {**values, "password_hash": "…"}

"""What the command palette finds: pages, queues, exchanges, connections, virtual hosts, users."""

from __future__ import annotations

import asyncio
from typing import Any

from django.http import HttpRequest, HttpResponseBase, JsonResponse

from frontend import addresses
from frontend.asking import ask
from management.broker_client import BrokerError

RESULTS_AT_MOST = 20
ASKED_OF_EACH = 20
PAGES = (
    ("Overview", "/"),
    ("Queues", "/queues"),
    ("Exchanges", "/exchanges"),
    ("Connections", "/connections"),
    ("Channels", "/channels"),
    ("Consumers", "/consumers"),
    ("Policies", "/policies"),
    ("Virtual hosts", "/vhosts"),
    ("Reports", "/reports"),
    ("Console", "/console"),
    ("Connect", "/connect"),
)
PAGES_OF_TAGS: tuple[tuple[tuple[str, ...], tuple[tuple[str, str], ...]], ...] = (
    (("is_policymaker", "is_monitoring"), (("Federation", "/federation"), ("Shovels", "/shovels"))),
    (("is_administrator",), (("Users", "/users"), ("Definitions", "/definitions"))),
    (("is_monitoring",), (("Node", "/node"), ("Log", "/log"))),
)
"""Pages for users of whom one of these is true; `components/side.html` has the same."""


async def palette(request: HttpRequest) -> HttpResponseBase:
    """`{"results": [{kind, name, where, url}]}` for `?q=`, whole names first."""
    wanted = request.GET.get("q", "").strip()[:255]
    user = request.user
    pages = list(PAGES)
    for rights, more in PAGES_OF_TAGS:
        if any(getattr(user, right) for right in rights):
            pages += more
    found = [
        _result("page", name, "", url) for name, url in pages if wanted.lower() in name.lower()
    ]
    if wanted:
        nouns = ["queues", "exchanges", "connections", "vhosts"]
        if user.is_administrator:
            nouns.append("users")
        answers = await asyncio.gather(*(_find(request, noun, wanted) for noun in nouns))
        found += [result for results in answers for result in results]
    found.sort(key=lambda result: _rank(result["name"], wanted))
    return JsonResponse({"results": found[:RESULTS_AT_MOST]})


async def _find(request: HttpRequest, noun: str, wanted: str) -> list[dict[str, str]]:
    try:
        answer = await ask(
            request,
            "list",
            noun=noun,
            name=wanted,
            page=1,
            page_size=ASKED_OF_EACH,
            sort="name",
            columns=["name", "vhost", "user_provided_name"],
        )
    except BrokerError:
        return []
    return [_of_row(noun, row) for row in answer["items"]]


def _of_row(noun: str, row: dict[str, Any]) -> dict[str, str]:
    name = row["name"]
    match noun:
        case "queues":
            return _result("queue", name, row["vhost"], addresses.queue(row["vhost"], name))
        case "exchanges":
            shown = name or "(default)"
            return _result("exchange", shown, row["vhost"], addresses.exchange(row["vhost"], name))
        case "connections":
            given = row.get("user_provided_name") or name
            return _result("connection", given, row.get("vhost", ""), addresses.connection(name))
        case "vhosts":
            return _result("virtual host", name, "", addresses.vhost(name))
        case _:
            return _result("user", name, "", addresses.user(name))


def _result(kind: str, name: str, where: str, url: str) -> dict[str, str]:
    return {"kind": kind, "name": name, "where": where, "url": url}


def _rank(name: str, wanted: str) -> tuple[int, int, str]:
    low, part = name.lower(), wanted.lower()
    if low == part:
        place = 0
    elif low.startswith(part):
        place = 1
    elif any(word.startswith(part) for word in low.replace("-", ".").split(".")):
        place = 2
    else:
        place = 3
    return place, len(name), low

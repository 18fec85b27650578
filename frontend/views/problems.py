"""All problems, the heaviest first, a page at a time."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render

from frontend import problems as lines
from frontend.asking import ask, is_fragment, names_of
from frontend.tables import page_number, with_query
from management.broker_client import BrokerError

PAGE_SIZE = 50


async def problems(request: HttpRequest) -> HttpResponseBase:
    """The list; `vhost` narrows it."""
    wanted: dict[str, Any] = {"page_size": PAGE_SIZE}
    vhost = request.GET.get("vhost", "")
    if vhost:
        wanted["vhost"] = vhost
    try:
        answer = await ask(request, "problems", page=page_number(request.GET.get("page")), **wanted)
    except BrokerError as error:
        if error.error != "page_out_of_range":
            raise
        answer = await ask(request, "problems", page=1, **wanted)
    page = answer["page"]
    query = {"vhost": vhost}
    facts: dict[str, Any] = {
        "section": "overview",
        "found": answer,
        "problems": lines.shown(answer["items"]),
        "table": {"query": query},
        "first": (page - 1) * PAGE_SIZE + 1 if answer["items"] else 0,
        "last": (page - 1) * PAGE_SIZE + answer["item_count"],
        "here": with_query(request.path, {**query, "page": str(page) if page > 1 else ""}),
    }
    if page > 1:
        facts["previous_url"] = with_query(request.path, {**query, "page": str(page - 1)})
    if page < answer["page_count"]:
        facts["next_url"] = with_query(request.path, {**query, "page": str(page + 1)})
    if is_fragment(request):
        return render(request, "problems/list.html", facts)
    facts["vhosts"] = await names_of(request, "vhosts")
    return render(request, "problems.html", facts)

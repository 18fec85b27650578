"""The list of consumers, the stuck ones first."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render

from frontend.asking import is_fragment, names_of
from frontend.inner_tables import CLIENT, HELD, STATE
from frontend.tables import Column, fragment, load

COLUMNS = (
    Column("consumer_tag", "Consumer", "text", phone=True),
    STATE,
    Column("queue.name", "Queue", "consumer-queue", phone=True),
    Column("queue.vhost", "Virtual host", "vhost"),
    CLIENT._replace(phone=True),
    Column("channel_details.user", "User"),
    *HELD,
    Column("ack_required", "Acknowledges", "acknowledges"),
    Column("active", "Active", "yes-no"),
)


async def consumers(request: HttpRequest) -> HttpResponseBase:
    table = await load(
        request, "consumers", COLUMNS, default_sort="trouble", also=("channel_details", "queue")
    )
    facts = {"table": table, "section": "consumers", "empty": "connections/empty.html"}
    if is_fragment(request):
        return fragment(request, facts)
    states = [
        ("", "all"),
        ("trouble", "trouble"),
        ("stuck", "stuck"),
        ("full", "full"),
        ("idle", "idle"),
    ]
    facts |= {"vhosts": await names_of(request, "vhosts"), "states": states}
    return render(request, "consumers.html", facts)

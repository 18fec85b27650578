"""The list of consumers, the stuck ones first."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render

from frontend.asking import is_fragment, names_of
from frontend.tables import Column, fragment, load

COLUMNS = (
    Column("consumer_tag", "Consumer", "text", phone=True),
    Column("trouble", "State", "trouble", phone=True),
    Column("queue.name", "Queue", "consumer-queue", phone=True),
    Column("queue.vhost", "Virtual host", "vhost"),
    Column(
        "channel_details.connection_name",
        "Client",
        "connection-of",
        phone=True,
        sort="channel_details.user_provided_name",
    ),
    Column("channel_details.user", "User"),
    Column("unacked", "Unacked", "count", phone=True),
    Column("prefetch_count", "Prefetch", "count", help="0 is no limit", phone=True),
    Column("ack_required", "Acknowledges", "yes-no"),
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

"""The list of channels: who publishes, who is at its prefetch limit."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render

from frontend.asking import is_fragment, names_of
from frontend.tables import Column, fragment, load

COLUMNS = (
    Column(
        "connection_details.name",
        "Client",
        "connection-of",
        phone=True,
        sort="connection_details.user_provided_name",
    ),
    Column("number", "Channel", "count", phone=True),
    Column("vhost", "Virtual host", "vhost"),
    Column("user", "User"),
    Column("state", "State", "connection-state", phone=True),
    Column(
        "messages_unacknowledged",
        "Unacked",
        "count",
        "Messages",
        "Delivered, not yet acknowledged",
        phone=True,
    ),
    Column(
        "prefetch_count",
        "Prefetch",
        "count",
        "Messages",
        "The most unacknowledged messages of each consumer; 0 is no limit",
    ),
    Column(
        "messages_unconfirmed", "Unconfirmed", "count", "Messages", "Published, not yet confirmed"
    ),
    Column(
        "message_bytes_uncommitted",
        "Uncommitted",
        "size",
        "Messages",
        "Published in a transaction and not yet committed; max_uncommitted_bytes at most",
    ),
    Column("message_stats.publish_details.rate", "Publish", "rate", "Rates a second"),
    Column("message_stats.deliver_get_details.rate", "Deliver", "rate", "Rates a second"),
    Column("message_stats.ack_details.rate", "Ack", "rate", "Rates a second"),
    Column("confirm", "Confirms", "yes-no", sort=None),
)


async def channels(request: HttpRequest) -> HttpResponseBase:
    table = await load(
        request,
        "channels",
        COLUMNS,
        default_sort="-messages_unacknowledged",
        also=("message_stats", "connection_details"),
    )
    facts = {"table": table, "section": "channels", "empty": "connections/empty.html"}
    if is_fragment(request):
        return fragment(request, facts)
    return render(request, "channels.html", facts | {"vhosts": await names_of(request, "vhosts")})

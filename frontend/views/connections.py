"""The list of client connections."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render

from frontend.asking import is_fragment, names_of
from frontend.tables import Column, fragment, load

COLUMNS = (
    Column("name", "Client", "connection", phone=True, sort="user_provided_name"),
    Column("vhost", "Virtual host", "vhost"),
    Column("user", "User", "text", phone=True),
    Column("state", "State", "connection-state", phone=True),
    Column("protocol", "Protocol"),
    Column("channels", "Channels", "count", phone=True),
    Column("recv_oct_details.rate", "Received", "size", "Bytes a second"),
    Column("send_oct_details.rate", "Sent", "size", "Bytes a second"),
    Column("connected_at", "Since", "moment"),
)


async def connections(request: HttpRequest) -> HttpResponseBase:
    table = await load(
        request,
        "connections",
        COLUMNS,
        default_sort="user_provided_name",
        also=("user_provided_name", "client_properties.connection_name"),
    )
    facts = {"table": table, "section": "connections", "empty": "connections/empty.html"}
    if is_fragment(request):
        return fragment(request, facts)
    return render(
        request, "connections.html", facts | {"vhosts": await names_of(request, "vhosts")}
    )

"""How to connect: the address of this appliance in the words of three client libraries."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render

from frontend.asking import ask, names_of
from management.appliance import config
from management.hosts import host_of

LANGUAGES = (
    ("python", "Python (pika)"),
    ("node", "Node (amqplib)"),
    ("java", "Java"),
    ("browser", "Browser (amqp-client)"),
)


async def connect(request: HttpRequest) -> HttpResponseBase:
    """Snippets with host, port, virtual host and user filled in; never the password."""
    row = await ask(request, "overview")
    vhosts = await names_of(request, "vhosts")
    vhost = request.GET.get("vhost") or (vhosts[0] if vhosts else "/")
    host = host_of(request).rpartition(":")[0].strip("[]") or host_of(request)
    listeners: list[dict[str, Any]] = row.get("listeners") or []
    known = config()
    facts = {
        "section": "connect",
        "vhosts": vhosts,
        "vhost": vhost,
        "vhost_quoted": quote(vhost, safe=""),
        "host": host,
        "port": _port(listeners, "amqp") or known.amqp_port,
        "ws_port": _port(listeners, "http/web-amqp") or known.ws_port,
        "web_host": host_of(request),
        "user_quoted": quote(request.user.name, safe=""),
        "languages": LANGUAGES,
    }
    return render(request, "connect.html", facts)


def _port(listeners: list[dict[str, Any]], *protocols: str) -> int | None:
    """The port of the first listener of one of these protocols."""
    return next((one["port"] for one in listeners if one.get("protocol") in protocols), None)

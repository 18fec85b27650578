"""How to connect: the address of this appliance in the words of three client libraries."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render

from broker.serving.origins import host_name
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
    web_host = host_of(request)
    host = host_name(web_host) or web_host
    uri_host = f"[{host}]" if ":" in host else host
    is_secure = request.is_secure()
    ws_scheme = "wss" if is_secure else "ws"
    own_ws_uri = f"{ws_scheme}://{web_host}/ws/amqp"
    listeners: list[dict[str, Any]] = row.get("listeners") or []
    ws_port = _ws_port(listeners, is_secure)
    facts = {
        "section": "connect",
        "vhosts": vhosts,
        "vhost": vhost,
        "vhost_quoted": quote(vhost, safe=""),
        "host": host,
        "uri_host": uri_host,
        "port": _port(listeners, "amqp") or config().amqp_port,
        "ws_uri": f"{ws_scheme}://{uri_host}:{ws_port}/" if ws_port else own_ws_uri,
        "own_ws_uri": own_ws_uri,
        "web_uri": f"{request.scheme}://{web_host}",
        "user_quoted": quote(request.user.name, safe=""),
        "languages": LANGUAGES,
    }
    return render(request, "connect.html", facts)


def _ws_port(listeners: list[dict[str, Any]], is_secure: bool) -> int:
    """The broker's own port for AMQP over WebSocket; 0 for none. A page over TLS may not open a
    WebSocket without."""
    known = config()
    if not is_secure:
        return _port(listeners, "http/web-amqp") or known.ws_port
    configured = known.wss_port if known.tls_cert_file is not None else 0
    return _port(listeners, "https/web-amqp") or max(0, configured)


def _port(listeners: list[dict[str, Any]], *protocols: str) -> int | None:
    """The port of the first listener of one of these protocols."""
    return next((one["port"] for one in listeners if one.get("protocol") in protocols), None)

"""The console: the browser itself is an AMQP client, over WebSocket on this same port."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST

from frontend.asking import ask, names_of


async def console(request: HttpRequest) -> HttpResponseBase:
    """The page; its script signs in with a ticket when the person connects."""
    facts = {
        "section": "console",
        "vhosts": await names_of(request, "vhosts"),
        "vhost": request.GET.get("vhost", "/"),
        "queue": request.GET.get("queue", ""),
    }
    return render(request, "console.html", facts)


@require_POST
async def ticket(request: HttpRequest) -> HttpResponseBase:
    """`{user, ticket}`: a password for one AMQP login within 30 seconds and this session."""
    answer = await ask(request, "ticket.issue", session_id=request.login.session_id)
    user = request.user.name
    return JsonResponse({"user": user, "ticket": answer["ticket"]})

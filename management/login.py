"""Signing in and out. The broker checks passwords, counts failures and refuses too many."""

import logging
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase, HttpResponseRedirect, JsonResponse
from django.middleware.csrf import rotate_token
from django.shortcuts import render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_http_methods

from broker.process.logs import one_line
from management import refusals, sessions
from management.appliance import broker
from management.broker_client import BrokerError
from management.peer import peer_of
from management.request_user import User

log = logging.getLogger(__name__)

NO_TAG = (
    "This user may connect over AMQP but not use these pages: it has none of the tags "
    "management, policymaker, monitoring, administrator."
)
REFUSED = "The name or the password is wrong, or this user may not sign in from your address."


@sessions.public
@require_http_methods(["GET", "HEAD", "POST"])
async def login(request: HttpRequest) -> HttpResponseBase:
    """The form `login.html` (fields `username`, `password`, `next`) and its answer.

    The template is given `next`, `username` and `error`. Wrong credentials answer 401, too many
    attempts 429, a broker that is away 503, each with the form.
    """
    target = _safe_target(request)
    if request.method != "POST":
        if request.user.is_authenticated:
            return HttpResponseRedirect(target)
        return _form(request, target)
    username = request.POST.get("username", "")
    try:
        found = await broker().authenticate(
            username, request.POST.get("password", ""), peer_of(request.scope)
        )
    except BrokerError as error:
        reason = REFUSED if error.status == 401 else error.reason
        _note("could not sign in to the web app", username, request)
        return _form(request, target, username, reason, error.status)
    if not User(found["name"], tuple(found["tags"])).is_management:
        return _form(request, target, username, NO_TAG, 401)
    response = HttpResponseRedirect(target)
    begun = sessions.begin(found["name"], found["epoch"])
    sessions.write_cookie(response, begun, secure=request.is_secure())
    rotate_token(request)
    _note("signed in to the web app", found["name"], request)
    return response


def _note(what: str, user: str, request: HttpRequest) -> None:
    """A line of the log: who, from where."""
    log.info("user %s from %s %s", one_line(repr(user[:255])), peer_of(request.scope), what)


@sessions.public
@require_http_methods(["POST"])
async def logout(request: HttpRequest) -> HttpResponseBase:
    """End the session everywhere, live sockets included, and show the form."""
    current = request.login
    if current is not None:
        await sessions.SESSIONS.end(current)
    response = HttpResponseRedirect(settings.LOGIN_URL)
    response.delete_cookie(settings.SESSION_COOKIE_NAME, samesite="Lax")
    return response


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponseBase:
    """What Django's CSRF check answers with."""
    text = (
        f"CSRF check failed: {reason} Reload the page and try again; a script sends the token in "
        "the header X-CSRFToken, or a user and password instead of the session's cookie."
    )
    if request.path.startswith("/api/"):
        refusals.note(request, 403, text)
        return JsonResponse({"error": "not_authorised", "reason": text}, status=403)
    return refusals.answer(request, BrokerError(401, "not_authorised", text))


def _form(
    request: HttpRequest, target: str, username: str = "", error: str = "", status: int = 200
) -> HttpResponseBase:
    facts: dict[str, Any] = {"next": target, "username": username, "error": error}
    return render(request, "login.html", facts, status=status)


def _safe_target(request: HttpRequest) -> str:
    """Where to go after signing in: a path of this site, else the overview."""
    target = request.POST.get("next") or request.GET.get("next") or "/"
    if len(quote(target, safe="")) > sessions.NEXT_MAX:
        return "/"
    if target.startswith("/") and url_has_allowed_host_and_scheme(target, None):
        return target
    return "/"

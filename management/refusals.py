"""What a person sees when the broker refused or is away and the view did not say more itself, and
the lines of the log about who was not allowed what."""

import logging

from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.template import TemplateDoesNotExist
from django.template.loader import render_to_string

from broker.process.logs import one_line
from management.broker_client import BrokerError
from management.middleware import Middleware
from management.peer import peer_of

log = logging.getLogger(__name__)

NOT_ALLOWED = (401, 403)
RETRY_AFTER_S = 2
_ASK = "An administrator can give it to you."
_REASONS = {
    "Not management user": f"This page needs the tag management. {_ASK}",
    "Not policymaker user": f"This page needs the tag policymaker. {_ASK}",
    "Not monitor user": f"This page needs the tag monitoring. {_ASK}",
    "Not administrator user": "This page is for administrators.",
    "User not authorised to access virtual host": (
        f"This needs a permission in its virtual host, and you have none there. {_ASK}"
    ),
}
"""What a page says for RabbitMQ's words, which the API keeps."""

TITLES = {
    400: "That did not work",
    401: "Not allowed",
    404: "Not found",
    408: "It took too long",
    429: "Too many attempts",
    503: "The broker is away",
}


def note(request: HttpRequest, status: int, reason: str, user: str | None = None) -> None:
    """A line of the log if a right was missing: who, from where, what and why. `user` is the name
    of one who is not let in. One address of RabbitMQ's holds a password, which is left out."""
    if status not in NOT_ALLOWED:
        return
    name = user if user is not None else request.user.name
    match = request.resolver_match
    has_secret = match is not None and "password" in match.kwargs
    log.info(
        "user %s from %s was refused %s %s: %s",
        one_line(repr(name[:255])),
        peer_of(request.scope),
        request.method,
        f"/{match.route}" if has_secret else one_line(request.path[:500]),
        one_line(reason[:500]),
    )


def answer(request: HttpRequest, error: BrokerError) -> HttpResponseBase:
    """JSON below `/api/`, else the page `error.html` with `status`, `title` and `reason`.

    401 becomes 403 on a page: the person is signed in, but not allowed. 503 comes with a refresh,
    so that the page is itself again when the broker is back.
    """
    note(request, error.status, error.reason)
    if request.path.startswith("/api/"):
        response: HttpResponseBase = JsonResponse(
            {"error": error.error, "reason": error.reason}, status=error.status
        )
    else:
        status = 403 if error.status == 401 else error.status
        title = TITLES.get(error.status, "Something went wrong")
        if error.error == "busy":
            title = "Too much at once"
        reason = _REASONS.get(error.reason, error.reason)
        facts = {"status": status, "title": title, "reason": reason}
        try:
            page = render_to_string("error.html", facts, request)
            response = HttpResponse(page, status=status)
        except TemplateDoesNotExist:
            text = f"{title}: {reason}\n"
            response = HttpResponse(text, status=status, content_type="text/plain; charset=utf-8")
        if error.status == 503 and request.method == "GET":
            response["Refresh"] = str(RETRY_AFTER_S)
    if error.status == 503:
        response["Retry-After"] = str(RETRY_AFTER_S)
    return response


class RefusalMiddleware(Middleware):
    """Turns a `BrokerError` that a view let through into `answer`."""

    def process_exception(
        self, request: HttpRequest, exception: Exception
    ) -> HttpResponseBase | None:
        return answer(request, exception) if isinstance(exception, BrokerError) else None

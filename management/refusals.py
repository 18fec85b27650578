"""What a person sees when the broker refused or is away and the view did not say more itself."""

from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.template import TemplateDoesNotExist
from django.template.loader import render_to_string

from management.broker_client import BrokerError
from management.middleware import Middleware

RETRY_AFTER_S = 2
_TAGS = {
    "Not management user": "management",
    "Not policymaker user": "policymaker",
    "Not monitor user": "monitoring",
    "Not administrator user": "administrator",
}
"""The tag that is missing, by RabbitMQ's words for it."""
TITLES = {
    400: "That did not work",
    401: "Not allowed",
    404: "Not found",
    408: "It took too long",
    429: "Too many attempts",
    503: "The broker is away",
}


def answer(request: HttpRequest, error: BrokerError) -> HttpResponseBase:
    """JSON below `/api/`, else the page `error.html` with `status`, `title` and `reason`.

    401 becomes 403 on a page: the person is signed in, but not allowed. 503 comes with a refresh,
    so that the page is itself again when the broker is back.
    """
    if request.path.startswith("/api/"):
        response: HttpResponseBase = JsonResponse(
            {"error": error.error, "reason": error.reason}, status=error.status
        )
    else:
        status = 403 if error.status == 401 else error.status
        title = TITLES.get(error.status, "Something went wrong")
        if error.error == "busy":
            title = "Too much at once"
        tag = _TAGS.get(error.reason)
        reason = error.reason if tag is None else f"This is for users with the tag {tag} only."
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

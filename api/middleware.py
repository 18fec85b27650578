"""What every path below `/api/` has in common, whatever it names."""

from django.http import HttpRequest, HttpResponse, HttpResponseBase

from api.json_body import parse_aside
from broker.settings.bounds import ROW_BYTES_MAX
from management import bodies
from management.middleware import Middleware

DEFINITIONS = ("/api/definitions", "/api/all-configuration")


def longest_body(request: HttpRequest) -> int:
    """Bytes: a document or a message may be long; anything else is taken in one turn, and has to
    fit into a row of a document."""
    is_message = request.method == "POST" and request.path.endswith("/publish")
    is_long = is_message or request.path.startswith(DEFINITIONS)
    return bodies.BODY_MAX if is_long else ROW_BYTES_MAX


async def take_body(request: HttpRequest) -> None:
    """Reads the body of a call that is let in; an empty one is an empty object. Raises
    `BrokerError`."""
    if request.method not in ("GET", "HEAD"):
        await bodies.take(request, request.user.name, longest_body(request))
    if request.method in ("PUT", "POST") and not request.body:
        request._body = b"{}"
    if not request.path.startswith(DEFINITIONS):  # which the broker reads
        await parse_aside(request)


class ApiMiddleware(Middleware):
    """HEAD is answered as GET (the server drops the body), OPTIONS without credentials, and a
    method that a path does not know with 405 and an empty body. A slash at the end of a path
    changes nothing: no name can end in one, as names are percent-encoded."""

    async def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if not request.path.startswith("/api/"):
            return await self.get_response(request)
        if request.path.endswith("/") and request.path != "/api/":
            request.path = request.path_info = request.path[:-1]
        if request.method == "OPTIONS":
            return HttpResponse(status=200, headers={"Allow": "HEAD, GET, PUT, POST, DELETE"})
        if request.method == "HEAD":
            request.method = "GET"
        response = await self.get_response(request)
        if response.status_code == 405:
            return HttpResponse(status=405, headers={"Allow": response.headers.get("Allow", "")})
        return response

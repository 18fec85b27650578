"""The API object: authentication, error bodies and the description at `/api/openapi.json`."""

import logging
from typing import Any

from django.core.exceptions import SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponse
from django.http.multipartparser import MultiPartParserError
from ninja import NinjaAPI
from ninja.errors import HttpError, ValidationError

from api.identity import BasicOrSession, ForeignOrigin, NoCredentials, claimed
from api.json_body import BadBody, ObjectParser, Renderer
from broker.process.logs import one_line
from management import refusals
from management.broker_client import BrokerError

log = logging.getLogger(__name__)

HEALTH_CHECKS = ("/api/health/", "/api/healthchecks/", "/api/aliveness-test/")

REALM = 'Basic realm="Leveret Management", charset="UTF-8"'


class DescribedOnce(NinjaAPI):
    """Makes its description at the first request for it: each time it took 0.1 s."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._description: Any = None

    def get_openapi_schema(self, **_: Any) -> Any:
        """The same for everyone: no path below `/api/` has a parameter before the API's own."""
        if self._description is None:
            self._description = super().get_openapi_schema(path_prefix="/api/")
        return self._description


api = DescribedOnce(
    title="Leveret HTTP API",
    version="1",
    description=(
        "Paths, bodies, statuses and permission rules of RabbitMQ's HTTP API. Names in paths are "
        "percent-encoded, `/` as `%2F`; the default exchange is `amq.default`. Errors are "
        '`{"error", "reason"}`.'
    ),
    auth=BasicOrSession(),
    docs_url=None,
    parser=ObjectParser(),
    renderer=Renderer(),
    urls_namespace="api",
)


def error(request: HttpRequest, status: int, word: str, reason: Any) -> HttpResponse:
    """The one shape of every error body."""
    return api.create_response(request, {"error": word, "reason": reason}, status=status)


def not_found(request: HttpRequest) -> HttpResponse:
    """What every path that names nothing answers."""
    return error(request, 404, "Object Not Found", "Not Found")


@api.exception_handler(BrokerError)
def _broker_refused(request: HttpRequest, refusal: BrokerError) -> HttpResponse:
    refusals.note(request, refusal.status, refusal.reason, claimed(request))
    body = {"error": refusal.error, "reason": refusal.reason}
    if refusal.status == 503 and request.path.startswith(HEALTH_CHECKS):
        # A check that cannot be made has failed.
        body["status"] = "failed"
    response = api.create_response(request, body, status=refusal.status)
    if refusal.status == 503:
        response["Retry-After"] = str(refusals.RETRY_AFTER_S)
    return response


@api.exception_handler(NoCredentials)
def _no_credentials(request: HttpRequest, _: NoCredentials) -> HttpResponse:
    response = HttpResponse(status=401)
    if request.headers.get("Sec-Fetch-Dest") != "empty":
        # A script's own call must not make the browser ask the person for a password.
        response["WWW-Authenticate"] = REALM
    return response


@api.exception_handler(ForeignOrigin)
def _foreign_origin(request: HttpRequest, refusal: ForeignOrigin) -> HttpResponse:
    refusals.note(request, 403, str(refusal), claimed(request))
    return error(request, 403, "not_authorised", str(refusal))


@api.exception_handler(BadBody)
def _bad_body(request: HttpRequest, fault: BadBody) -> HttpResponse:
    return error(request, 400, "bad_request", str(fault))


@api.exception_handler(MultiPartParserError)
def _bad_form(request: HttpRequest, fault: MultiPartParserError) -> HttpResponse:
    return error(request, 400, "bad_request", f"the form cannot be read: {fault}")


@api.exception_handler(SuspiciousOperation)
def _large_form(request: HttpRequest, fault: SuspiciousOperation) -> HttpResponse:
    # Django's texts name its settings, which are none of this program's.
    log.info("%s %s: %s", request.method, ascii(request.path), one_line(str(fault)[:500]))
    reason = "the form cannot be read: its fields or files are too many or too large"
    return error(request, 400, "bad_request", reason)


@api.exception_handler(HttpError)
def _http_error(request: HttpRequest, fault: HttpError) -> HttpResponse:
    cause = fault.__cause__
    reason = str(cause) if isinstance(cause, BadBody) else str(fault)
    return error(request, fault.status_code, "bad_request", reason)


@api.exception_handler(ValidationError)
def _wrong_shape(request: HttpRequest, fault: ValidationError) -> HttpResponse:
    return error(request, 400, "bad_request", "; ".join(_complaint(row) for row in fault.errors))


@api.exception_handler(Http404)
def _missing(request: HttpRequest, _: Http404) -> HttpResponse:
    return not_found(request)


@api.exception_handler(Exception)
def _defect(request: HttpRequest, fault: Exception) -> HttpResponse:
    log.error("%s %s failed", request.method, ascii(request.path), exc_info=fault)
    return error(request, 500, "internal_error", "a defect of the web process; its log says more")


def _complaint(row: dict[str, Any]) -> str:
    """One fault of a body in words: `key_missing: tags`, `durable: not_boolean`."""
    name = ".".join(str(part) for part in row["loc"] if part not in ("body", "query", "path"))
    if row["type"] == "missing":
        return f"key_missing: {name or 'body'}"
    return f"{name}: {row['msg'].removeprefix('Value error, ')}"

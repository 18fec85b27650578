"""`/metrics` on the web port: the pages of the metrics port, for users who may monitor."""

from django.http import HttpRequest, HttpResponse, HttpResponseBase

from api.identity import BasicOrSession, ForeignOrigin, NoCredentials
from api.service import REALM
from management.appliance import broker
from management.broker_client import BrokerError
from management.sessions import public

_MONITORING = BasicOrSession("monitoring")
_PLAIN = "text/plain; charset=utf-8"


@public
async def metrics(request: HttpRequest, page: str = "") -> HttpResponseBase:
    """A page of metrics, by the rules of the API: credentials or a session, and its tag."""
    if request.method not in ("GET", "HEAD"):
        return HttpResponse(status=405, headers={"Allow": "GET, HEAD"})
    try:
        user = await _MONITORING(request)
        path = f"/metrics/{page}" if page else "/metrics"
        query = request.META.get("QUERY_STRING", "")
        answer = await broker().call("metrics", as_user=user.name, path=path, query=query)
    except NoCredentials:
        return HttpResponse(status=401, headers={"WWW-Authenticate": REALM})
    except ForeignOrigin as error:
        return HttpResponse(f"{error}\n", status=403, content_type=_PLAIN)
    except BrokerError as error:
        return HttpResponse(f"{error.reason}\n", status=error.status, content_type=_PLAIN)
    return HttpResponse(
        answer["body"], content_type=answer["content_type"], headers={"Cache-Control": "no-store"}
    )

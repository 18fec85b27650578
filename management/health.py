"""`/health`: whether this process answers and reaches the broker, for supervisors and balancers."""

from django.http import HttpRequest, HttpResponseBase, JsonResponse

from management.appliance import broker
from management.broker_client import BrokerError
from management.sessions import public


@public
async def health(request: HttpRequest) -> HttpResponseBase:
    """200 `{"status": "ok"}`, or 503 with the reason. Needs no credentials and tells no more."""
    try:
        answer = await broker().call("health", check="ready-to-serve-clients", timeout_s=5.0)
    except BrokerError as error:
        return JsonResponse({"status": "failed", "reason": error.reason}, status=503)
    ready = answer.get("status") == "ok"
    return JsonResponse({"status": "ok" if ready else "failed"}, status=200 if ready else 503)

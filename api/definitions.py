"""Definitions in RabbitMQ's format: everything there is, without the messages."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Router

from api import json_body
from api.ask import ask, done
from management.broker_client import BrokerError

router = Router(tags=["Definitions"])


@router.get("/definitions")
async def export_definitions(request: HttpRequest) -> Any:
    """Users, vhosts, permissions, policies, exchanges, queues and bindings."""
    return await ask(request, "definitions.export")


@router.get("/all-configuration")
async def export_all_configuration(request: HttpRequest) -> Any:
    """An older name of the same."""
    return await ask(request, "definitions.export")


@router.get("/definitions/{seg:vhost}")
async def export_vhost_definitions(request: HttpRequest, vhost: str) -> Any:
    """Policies, exchanges, queues and bindings of one vhost."""
    return await ask(request, "definitions.export", vhost=vhost)


@router.post("/definitions", response={204: None})
async def import_definitions(request: HttpRequest) -> HttpResponse:
    """Merge definitions in: JSON, or a form with the field `file`. What exists is kept."""
    await ask(request, "definitions.import", definitions=_definitions(request))
    return done()


@router.post("/all-configuration", response={204: None})
async def import_all_configuration(request: HttpRequest) -> HttpResponse:
    """An older name of the same."""
    return await import_definitions(request)


@router.post("/definitions/{seg:vhost}", response={204: None})
async def import_vhost_definitions(request: HttpRequest, vhost: str) -> HttpResponse:
    """Merge the definitions of one vhost in."""
    await ask(request, "definitions.import", definitions=_definitions(request), vhost=vhost)
    return done()


def _definitions(request: HttpRequest) -> dict[str, Any]:
    if request.content_type == "multipart/form-data":
        file = request.FILES.get("file")
        if file is None:
            raise BrokerError(400, "bad_request", "the form has no file in the field `file`")
        return json_body.parse(file.read())
    return json_body.parse(request.body)

"""Shovels as RabbitMQ's management API shows them, with LavinMQ's pause and resume.

They are defined as parameters of the component `shovel` (`api/policies.py`).
"""

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Router, Schema

from api.ask import ask, done
from api.identity import POLICYMAKER
from api.shapes import Object
from management.broker_client import BrokerError

router = Router(tags=["Shovels"])


class Definition(Schema):
    value: Object


@router.get("/shovels")
async def list_shovels(request: HttpRequest) -> Any:
    """Shovels of the vhosts that the caller may use, with state, rate, counts and last error."""
    return await ask(request, "shovel.list")


@router.get("/shovels/{seg:vhost}")
async def list_shovels_of(request: HttpRequest, vhost: str) -> Any:
    """Shovels of one vhost."""
    return await ask(request, "shovel.list", vhost=vhost)


@router.get("/shovels/vhost/{seg:vhost}/{seg:name}")
async def get_shovel(request: HttpRequest, vhost: str, name: str) -> Any:
    """One shovel."""
    found = await ask(request, "shovel.list", vhost=vhost, name=name)
    if not found:
        raise BrokerError(404, "not_found", "Not Found")
    return found[0]


@router.delete("/shovels/vhost/{seg:vhost}/{seg:name}", response={204: None}, auth=POLICYMAKER)
async def delete_shovel(request: HttpRequest, vhost: str, name: str) -> HttpResponse:
    """Stop a shovel and remove its definition."""
    await ask(request, "parameter.delete", component="shovel", vhost=vhost, name=name)
    return done()


@router.delete(
    "/shovels/vhost/{seg:vhost}/{seg:name}/restart", response={204: None}, auth=POLICYMAKER
)
async def restart_shovel(request: HttpRequest, vhost: str, name: str) -> HttpResponse:
    """Close the connections of a shovel and begin anew (DELETE, as in RabbitMQ)."""
    await ask(request, "shovel.restart", vhost=vhost, name=name)
    return done()


@router.put("/shovels/{seg:vhost}/{seg:name}/pause", response={204: None}, auth=POLICYMAKER)
async def pause_shovel(request: HttpRequest, vhost: str, name: str) -> HttpResponse:
    """Stop a shovel until it is resumed; over restarts, too."""
    await ask(request, "shovel.pause", vhost=vhost, name=name)
    return done()


@router.put("/shovels/{seg:vhost}/{seg:name}/resume", response={204: None}, auth=POLICYMAKER)
async def resume_shovel(request: HttpRequest, vhost: str, name: str) -> HttpResponse:
    """Let a paused shovel run again."""
    await ask(request, "shovel.resume", vhost=vhost, name=name)
    return done()


@router.post("/shovels/{seg:vhost}/{seg:name}/test", auth=POLICYMAKER)
async def test_shovel(request: HttpRequest, vhost: str, name: str, body: Definition) -> Any:
    """Try both ends of a definition, stored or not: name, address, TLS, login, vhost, queue or
    exchange. Nothing is declared or moved."""
    return await ask(request, "shovel.test", vhost=vhost, name=name, value=body.value)

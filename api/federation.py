"""The links of federation as RabbitMQ's management API shows them.

Upstreams and sets are parameters (`api/policies.py`), and policies say what is federated. Paths of
what is down end with a slash in RabbitMQ.
"""

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Router, Schema

from api.ask import ask, done
from api.identity import POLICYMAKER
from api.shapes import Object

router = Router(tags=["Federation"])


class Definition(Schema):
    value: Object


@router.get("/federation-links")
async def list_federation_links(request: HttpRequest) -> Any:
    """Links of the vhosts that the caller may use, with state, rate, counts and last error."""
    return await ask(request, "federation.list")


@router.get("/federation-links/{seg:vhost}")
async def list_federation_links_of(request: HttpRequest, vhost: str) -> Any:
    """Links of one vhost."""
    return await ask(request, "federation.list", vhost=vhost)


@router.get("/federation-links/state/down")
@router.get("/federation-links/state/down/", include_in_schema=False)
async def list_federation_links_down(request: HttpRequest) -> Any:
    """Links that neither run nor start."""
    return await ask(request, "federation.list", down=True)


@router.get("/federation-links/{seg:vhost}/state/down")
@router.get("/federation-links/{seg:vhost}/state/down/", include_in_schema=False)
async def list_federation_links_of_down(request: HttpRequest, vhost: str) -> Any:
    """Links of one vhost that neither run nor start."""
    return await ask(request, "federation.list", vhost=vhost, down=True)


@router.delete(
    "/federation-links/vhost/{seg:vhost}/{seg:id}/{seg:node}/restart",
    response={204: None},
    auth=POLICYMAKER,
)
async def restart_federation_link(
    request: HttpRequest, vhost: str, id: str, node: str
) -> HttpResponse:
    """Close the connections of a link and begin anew (DELETE, as in RabbitMQ). There is one node,
    so that any name of one is accepted."""
    await ask(request, "federation.restart", vhost=vhost, id=id)
    return done()


@router.post("/federation-upstreams/{seg:vhost}/{seg:name}/test", auth=POLICYMAKER)
async def test_federation_upstream(
    request: HttpRequest, vhost: str, name: str, body: Definition
) -> Any:
    """Try the definition of an upstream, stored or not: name, address, TLS, login, vhost, and the
    exchange or queue that it names. Nothing is declared or moved."""
    return await ask(request, "federation.test", vhost=vhost, name=name, value=body.value)

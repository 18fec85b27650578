"""What RabbitMQ's API has and this one does not: a call that would change it says so (501).

Lists of such things are honest as they are: empty. They answer so that clients which read them all
keep working.
"""

from typing import Any, NoReturn

from django.http import HttpRequest
from ninja import Router

from api.ask import ask
from management.broker_client import BrokerError

router = Router(tags=["Not built"])


async def refuse(request: HttpRequest, what: str) -> NoReturn:
    """Answer 501 to a caller who may use the API at all. Always raises `BrokerError`."""
    await ask(request, "whoami")
    raise BrokerError(501, "not_implemented", f"Leveret does not have {what} yet")


async def _nothing_to_monitor(request: HttpRequest) -> list[Any]:
    await ask(request, "auth.attempts")
    return []


@router.get("/federation-links")
async def list_federation_links(request: HttpRequest) -> Any:
    """Always empty: stored upstreams (`/api/parameters/federation-upstream`) do not run."""
    return await _nothing_to_monitor(request)


@router.get("/federation-links/{seg:vhost}")
async def list_federation_links_of(request: HttpRequest, vhost: str) -> Any:
    """Always empty: stored upstreams (`/api/parameters/federation-upstream`) do not run."""
    return await _nothing_to_monitor(request)


@router.post("/rebalance/queues")
async def rebalance(request: HttpRequest) -> Any:
    """Not built: there is one node."""
    await refuse(request, "rebalancing of queues: it is one node")

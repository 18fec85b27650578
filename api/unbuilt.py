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


@router.post("/rebalance/queues")
async def rebalance(request: HttpRequest) -> Any:
    """Not built: there is one node."""
    await refuse(request, "rebalancing of queues: it is one node")

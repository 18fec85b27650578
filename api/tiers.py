"""Tiers: the object store that segments of streams go to."""

from typing import Any

from django.http import HttpRequest
from ninja import Router

from api.ask import ask

router = Router(tags=["Tiers"])


@router.get("/tiers")
async def show_tiers(request: HttpRequest) -> Any:
    """The object store: its state, what waits, what was put, fetched and deleted, and what it
    cost."""
    return await ask(request, "tiers")


@router.post("/tiers/adopt")
async def adopt_tiers(request: HttpRequest) -> Any:
    """Make the prefix in the object store this appliance's: for the copy of a backup whose original
    is no more."""
    return await ask(request, "tiers.adopt")

"""The list of users, and making one. For administrators."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render

from frontend import addresses
from frontend.asking import FormError, ask, done, is_fragment, reason_of
from frontend.tables import Column, fragment, load
from management.broker_client import BrokerError

COLUMNS = (
    Column("name", "User", "user", phone=True),
    Column("tags", "Tags", "tags", sort=None, phone=True),
    Column("hashing_algorithm", "Password kept as", "text", sort=None),
)
TAGS = (
    ("", "none: may connect over AMQP only"),
    ("management", "management: sees its own virtual hosts and connections here"),
    ("policymaker", "policymaker: also policies and parameters"),
    ("monitoring", "monitoring: sees everything, changes nothing more"),
    ("administrator", "administrator: everything"),
)


async def users(request: HttpRequest) -> HttpResponseBase:
    """GET: the list. POST: create."""
    facts: dict[str, Any] = {"section": "users", "form": request.POST, "tags": TAGS}
    if request.method == "POST":
        try:
            return await _create(request)
        except (BrokerError, FormError) as error:
            facts["refusal"] = reason_of(error)
    facts["table"] = await load(request, "users", COLUMNS, default_sort="name")
    if is_fragment(request):
        return fragment(request, facts)
    return render(request, "users.html", facts, status=400 if "refusal" in facts else 200)


async def _create(request: HttpRequest) -> HttpResponseBase:
    fields = request.POST
    name, password = fields.get("name", ""), fields.get("password", "")
    if not name or not password:
        raise FormError("A user needs a name and a password.")
    existing = await ask(request, "list", noun="users", columns=["name"])
    if any(row["name"] == name for row in existing["items"]):
        raise FormError("There is already a user of this name; change it on its page.")
    tags = [fields["tag"]] if fields.get("tag") else []
    await ask(request, "user.put", name=name, password=password, tags=tags)
    return done(request, addresses.user(name), "The user is there. Now give it permissions.")

"""What every view does: ask the broker in the name of the person, read forms, answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote

from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect

from management.appliance import broker
from management.broker_client import BrokerError

TOAST_COOKIE = "leveret_toast"
TOAST_SECONDS = 60


class FormError(Exception):
    """What the person must change in a form; the text says which field and how."""


async def ask(request: HttpRequest, verb: str, **arguments: Any) -> Any:
    """The broker's answer, with the rights of the signed-in user. Raises `BrokerError`."""
    user = request.user.name
    return await broker().call(verb, as_user=user, **arguments)


async def names_of(request: HttpRequest, noun: str, **arguments: Any) -> list[str]:
    """The names of up to 500 objects of a noun, for a select or a list of suggestions. Virtual
    hosts are those that the user may look into."""
    if noun == "vhosts":
        arguments["user"] = request.user.name
    answer = await ask(
        request,
        "list",
        noun=noun,
        columns=["name"],
        sort="name",
        page=1,
        page_size=500,
        **arguments,
    )
    return [row["name"] for row in answer["items"]]


def is_fragment(request: HttpRequest) -> bool:
    """Whether htmx asks, and so wants a part of the page."""
    return request.headers.get("HX-Request") == "true"


def done(request: HttpRequest, address: str, text: str) -> HttpResponseBase:
    """Go to a page and say there, for a moment, what was done."""
    response: HttpResponse
    if is_fragment(request):
        response = HttpResponse(status=204, headers={"HX-Redirect": address})
    else:
        response = HttpResponseRedirect(address)
    response.set_cookie(TOAST_COOKIE, quote(text[:400]), max_age=TOAST_SECONDS, samesite="Lax")
    return response


def row_of(request: HttpRequest) -> dict[str, str]:
    """The fields of a form, with those of the row whose button was pressed (`row_forms`)."""
    row = parse_qsl(request.POST.get("row", ""), keep_blank_values=True)
    return {**request.POST.dict(), **dict(row)}


def arguments_table(fields: Mapping[str, str], name: str = "arguments") -> dict[str, Any]:
    """A table of AMQP arguments or headers from a field that holds a JSON object."""
    text = fields.get(name, "").strip()
    if not text:
        return {}
    try:
        value = json.loads(text)
    except ValueError as error:
        raise FormError(f"The {name} are not JSON: {error}.") from None
    if not isinstance(value, dict):
        raise FormError(f'The {name} must be a JSON object, for example {{"x-max-length": 1000}}.')
    return value


def whole_number(fields: Mapping[str, str], name: str, low: int, high: int, default: int) -> int:
    """A number of a form between two bounds."""
    text = fields.get(name, "").strip()
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and low <= int(text) <= high):
        raise FormError(f"{name} must be a whole number from {low} to {high}.")
    return int(text)


def reason_of(error: BrokerError | FormError) -> str:
    """The words to show beside the form."""
    return error.reason if isinstance(error, BrokerError) else str(error)

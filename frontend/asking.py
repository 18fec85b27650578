"""What every view does: ask the broker in the name of the person, read forms, answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any
from urllib.parse import parse_qsl, quote

from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect

from broker.serving.json_nesting import is_nested_over
from management.appliance import broker
from management.broker_client import BrokerError

TOAST_COOKIE = "leveret_toast"
TOAST_SECONDS = 60
DEPTH_MAX = 64
"""Levels of lists and objects in JSON that is typed, as in bodies of the HTTP API."""
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1
DIGITS_MAX = 19
"""Digits of a number in a form: of the largest that an AMQP field holds."""


class FormError(Exception):
    """What the person must change in a form; the text says which field and how."""


async def ask(request: HttpRequest, verb: str, **arguments: Any) -> Any:
    """The broker's answer, with the rights of the signed-in user. Raises `BrokerError`."""
    user = request.user.name
    return await broker().call(verb, as_user=user, **arguments)


async def is_there(request: HttpRequest, noun: str, **key: str) -> bool:
    """Whether there is an object of this key, for a form that makes a new one: the broker changes
    what has the same name."""
    try:
        await ask(request, "item", noun=noun, **key)
    except BrokerError as error:
        if error.status != 404:
            raise
        return False
    return True


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
    value = typed_json(text, f"The {name} are")
    if not isinstance(value, dict):
        raise FormError(f'The {name} must be a JSON object, for example {{"x-max-length": 1000}}.')
    return value


def typed_json(text: str, which: str) -> Any:
    """The value of JSON that a person typed or a page sent, if AMQP can carry it. Raises FormError,
    whose text begins with `which`: "The headers are"."""
    if is_nested_over(text, DEPTH_MAX):
        raise FormError(f"{which} nested over {DEPTH_MAX} levels.")
    try:
        # The first digits of an integer tell that it is too large; all of them may be too many.
        value = json.loads(text, parse_int=lambda digits: int(digits[:40]))
    except ValueError as error:
        raise FormError(f"{which} not JSON: {error}.") from None
    if (fault := _uncarried(value)) is not None:
        raise FormError(f"{which} not usable: {fault}.")
    return value


def _uncarried(value: Any) -> str | None:
    """Why no message to the broker can hold this value; None if one can."""
    match value:
        case dict():
            return next(filter(None, map(_uncarried, (*value, *value.values()))), None)
        case list():
            return next(filter(None, map(_uncarried, value)), None)
        case int() if not INTEGER_MIN <= value <= INTEGER_MAX:
            return f"{value} does not fit in 64 bits"
        case float() if not isfinite(value):
            return "a number in it is infinite or none"
        case str():
            try:
                value.encode()
            except UnicodeEncodeError:
                return "a text in it holds half a surrogate pair"
    return None


def digits_in(text: str) -> int | None:
    """The number that a text of digits says; None for other text, and for a number with more
    digits than one that a field can hold."""
    is_number = text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX
    return int(text) if is_number else None


def whole_number(fields: Mapping[str, str], name: str, low: int, high: int, default: int) -> int:
    """A number of a form between two bounds."""
    text = fields.get(name, "").strip()
    if not text:
        return default
    number = digits_in(text)
    if number is None or not low <= number <= high:
        raise FormError(f"{name} must be a whole number from {low} to {high}.")
    return number


def reason_of(error: BrokerError | FormError) -> str:
    """The words to show beside the form."""
    return error.reason if isinstance(error, BrokerError) else str(error)

"""Asking the broker on behalf of the caller, and the answers to calls that change something."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from django.http import HttpRequest, HttpResponse

from management.appliance import broker
from management.broker_client import BrokerError

DEFAULT_EXCHANGE = "amq.default"


async def ask(request: HttpRequest, verb: str, **arguments: Any) -> Any:
    """The broker's answer to a verb of the control socket; raises `BrokerError`."""
    try:
        return await broker().call(
            verb,
            as_user=request.user.name,
            **arguments,
        )
    except UnicodeEncodeError:
        raise _bad_name() from None
    except OverflowError:
        raise _bad_number() from None


async def ask_slices(
    request: HttpRequest, verb: str, **arguments: Any
) -> AsyncGenerator[dict[str, Any]]:
    """The broker's answers to a verb that has `slices`, slice by slice. To be closed. Raises
    `BrokerError`, also in the middle."""
    slices = broker().sliced(verb, as_user=request.user.name, **arguments)
    async with aclosing(slices):
        try:
            async for answer in slices:
                yield answer
        except UnicodeEncodeError:
            raise _bad_name() from None
        except OverflowError:
            raise _bad_number() from None


def _bad_number() -> BrokerError:
    return BrokerError(400, "bad_request", "a whole number does not fit into 64 bits")


def header_text(request: HttpRequest, name: str) -> str:
    """A header whose value is text, as clients send it: UTF-8, which Django reads as Latin-1. What
    is no UTF-8 is taken as it came. Empty without such a header."""
    value = str(request.headers.get(name, ""))
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value


def _bad_name() -> BrokerError:
    return BrokerError(400, "bad_request", "a name holds half a surrogate pair")


def put_answer(answer: dict[str, Any]) -> HttpResponse:
    """201 for something new, 204 for something that was there."""
    return HttpResponse(status=201 if answer.get("created") else 204)


def done() -> HttpResponse:
    return HttpResponse(status=204)


def given(**arguments: Any) -> dict[str, Any]:
    """The arguments that are not None: the broker's defaults hold for the others."""
    return {key: value for key, value in arguments.items() if value is not None}

"""The delayed messages on an exchange's page: searched by the URL, a page at a time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl

from django.http import HttpRequest

from frontend import addresses
from frontend.asking import FormError, ask, reason_of
from frontend.tables import with_query
from management.broker_client import BrokerError

PAGE_SIZE = 50
_QUERY = ("delayed_key", "due_from", "due_until")


async def found(request: HttpRequest, vhost: str, name: str) -> dict[str, Any]:
    """What `exchange/delayed.html` shows of the exchange."""
    query = {key: request.GET.get(key, "") for key in _QUERY}
    after = request.GET.get("after") or None
    shown = {
        "key": query["delayed_key"],
        "due_from": query["due_from"],
        "due_until": query["due_until"],
        "is_searched": any(query.values()),
        "is_later": after is not None,
        # A form sends its own fields as the whole query.
        "address_fields": parse_qsl(addresses.exchange(vhost, name).partition("?")[2]),
        "first_url": _url(vhost, name, query),
    }
    try:
        answer = await ask(
            request,
            "exchange.delayed",
            vhost=vhost,
            name=name,
            routing_key=query["delayed_key"],
            due_from=_milliseconds(query["due_from"]),
            due_until=_milliseconds(query["due_until"]),
            after=after,
            count=PAGE_SIZE,
        )
    except (BrokerError, FormError) as error:
        return {**shown, "error": reason_of(error)}
    following = answer["next"] and _url(vhost, name, {**query, "after": answer["next"]})
    return {
        **shown,
        "items": answer["items"],
        "searched": answer["searched"],
        "next_url": following,
    }


def _url(vhost: str, name: str, query: dict[str, str]) -> str:
    path, _, names = addresses.exchange(vhost, name).partition("?")
    return f"{with_query(path, {**dict(parse_qsl(names)), **query})}#delayed"


def _milliseconds(written: str) -> int | None:
    """A `datetime-local` in UTC, as ms since 1970."""
    if not written:
        return None
    try:
        moment = datetime.fromisoformat(written)
    except ValueError:
        raise FormError(f"'{written[:40]}' is no time.") from None
    return round(moment.replace(tzinfo=UTC).timestamp() * 1000)

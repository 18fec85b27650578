"""Lists and single objects: RabbitMQ's query parameters, and the broker's rows for them."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import msgspec
from django.http import HttpRequest, StreamingHttpResponse
from ninja import Schema

from api.ask import ask, ask_slices, given, header_text
from management.broken_answers import BrokenAnswer
from management.broker_client import BrokerError
from management.memory import LARGE, give_back_soon

SAMPLES = ("msg_rates", "lengths", "data_rates", "node_stats")


class SampleQuery(Schema):
    """Samples wanted besides the totals: how far back and how far apart, in seconds."""

    msg_rates_age: str | None = None
    msg_rates_incr: str | None = None
    lengths_age: str | None = None
    lengths_incr: str | None = None
    data_rates_age: str | None = None
    data_rates_incr: str | None = None
    node_stats_age: str | None = None
    node_stats_incr: str | None = None
    disable_stats: str | None = None
    enable_queue_totals: str | None = None

    def wanted(self) -> dict[str, Any]:
        """What a row should hold, as the verbs `item` and `list` want it. Raises `BrokerError` for
        what is no number."""
        return given(
            ages=self.ages() or None,
            disable_stats=_flag(self.disable_stats),
            enable_queue_totals=_flag(self.enable_queue_totals),
        )

    def ages(self) -> dict[str, tuple[int, int]]:
        """As `control_schema` names them. Raises `BrokerError` for what is no number."""
        found: dict[str, tuple[int, int]] = {}
        for name in SAMPLES:
            age, increment = getattr(self, f"{name}_age"), getattr(self, f"{name}_incr")
            if age is not None and increment is not None:
                found[name] = (_whole(age, f"{name}_age"), _whole(increment, f"{name}_incr"))
        return found

    def of_node(self) -> dict[str, Any]:
        """The same for the verbs `nodes` and `overview`, whose counts are those of all queues."""
        wanted = self.wanted()
        wanted.pop("enable_queue_totals", None)
        return wanted


class ListQuery(SampleQuery):
    """Filter, order and page of a list. Without `page` the answer is the bare list."""

    page: str | None = None
    page_size: str | None = None
    name: str | None = None
    use_regex: str | None = None
    sort: str | None = None
    sort_reverse: str | None = None
    columns: str | None = None

    def arguments(self) -> dict[str, Any]:
        """As the verb `list` wants them. Raises `BrokerError` for what is no number."""
        return given(
            page=_page_number(self.page),
            page_size=_page_number(self.page_size),
            name=self.name or None,
            use_regex=_flag(self.use_regex),
            sort=self.sort or None,
            sort_reverse=_flag(self.sort_reverse),
            columns=[name for name in self.columns.split(",") if name] if self.columns else None,
            **self.wanted(),
        )


async def rows(
    request: HttpRequest, noun: str, query: ListQuery | None = None, **filters: Any
) -> Any:
    """The rows of a noun: the bare list, or RabbitMQ's page object when a page was asked for.

    The header `X-Vhost` scopes a list that names no vhost itself. A long bare list is streamed: the
    broker builds its rows as the client takes them.
    """
    wanted = query.arguments() if query is not None else {}
    filters.setdefault("vhost", header_text(request, "X-Vhost") or None)
    request.columns_chosen = True
    if "page" in wanted:
        return await ask(request, "list", noun=noun, **wanted, **given(**filters))
    slices = ask_slices(request, "list", noun=noun, **wanted, **given(**filters))
    try:
        first = await anext(slices)
    except BaseException:
        await slices.aclose()
        raise
    if not first["more"]:
        await slices.aclose()
        return first["items"]
    return StreamingHttpResponse(
        _streamed(first, slices), content_type="application/json; charset=utf-8"
    )


async def _streamed(
    first: dict[str, Any], slices: AsyncGenerator[dict[str, Any]]
) -> AsyncIterator[bytes]:
    """The rows as one JSON array. Raises BrokenAnswer if not all come: its end is missing then."""
    async with aclosing(slices):
        try:
            yield _without_end(first["items"])
            async for answer in slices:
                if answer["items"]:
                    yield b"," + _without_end(answer["items"])[1:]
        except BrokerError as error:
            raise BrokenAnswer(error.reason) from None
        finally:
            if first["item_count"] >= LARGE:
                give_back_soon()
        yield b"]"


def _without_end(items: list[Any]) -> bytes:
    return msgspec.json.encode(items)[:-1]


async def row(request: HttpRequest, noun: str, **named: Any) -> Any:
    """One object; the broker answers 404 when it is missing."""
    return await ask(request, "item", noun=noun, **given(**named))


def _flag(text: str | None) -> bool | None:
    return None if text is None else text == "true"


def _whole(text: str, name: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) < 10:
        return int(text)
    raise BrokerError(400, "bad_request", f"{name} must be a number of seconds")


def _page_number(text: str | None) -> int | None:
    if text is None:
        return None
    if text.isascii() and text.isdecimal() and len(text) < 10:
        return int(text)
    if text.startswith("-") and text[1:].isdecimal():
        raise BrokerError(
            400, "invalid_pagination_parameters", f"Invalid pagination parameters: {text}"
        )
    raise BrokerError(400, "bad_request", "Pagination parameters are invalid")

"""The history of a virtual host: what was published in it, found by a key, and the life of each
message."""

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router

from api import payload
from api.ask import ask, given
from api.shapes import Number
from api.streams import SearchQuery, search
from broker.schema.message_history import HISTORY
from management.history_rows import record

router = Router(tags=["History"])


@router.get("/history/{seg:vhost}/search")
async def search_history(request: HttpRequest, vhost: str, query: Query[SearchQuery]) -> Any:
    """Find the newest records of a virtual host's history that have a key. `payload` is null where
    only the headers were recorded. `complete` is false where some may be missing, for the
    `reasons`."""
    found = await search(request, vhost, HISTORY, query)
    messages = found.pop("messages")
    return {**found, "records": [_shown(message, query.encoding) for message in messages]}


@router.get("/history/{seg:vhost}/life/{offset}")
async def message_life(
    request: HttpRequest, vhost: str, offset: int, truncate: Number | None = None
) -> Any:
    """Tell the life of the message whose record has this offset: `events` in the order of time, and
    in `places` what happened to it last in each queue. `kept` is false where no events are kept of
    these queues (policy `history-events`)."""
    found = await ask(
        request, "history.life", vhost=vhost, offset=offset, **given(truncate=truncate)
    )
    return {**found, "record": _shown(found["record"], "auto")}


def _shown(message: dict[str, Any], encoding: str) -> dict[str, Any]:
    text, used = payload.encode(message["payload"], encoding)
    row = record({**message, "payload": text})
    properties = payload.readable(row["properties"])
    return {**row, "properties": properties, "payload_encoding": used}

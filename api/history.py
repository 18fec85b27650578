"""The history of a virtual host: what was published in it, found by a key."""

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router

from api import payload
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


def _shown(message: dict[str, Any], encoding: str) -> dict[str, Any]:
    text, used = payload.encode(message["payload"], encoding)
    row = record({**message, "payload": text})
    properties = payload.readable(row["properties"])
    return {**row, "properties": properties, "payload_encoding": used}

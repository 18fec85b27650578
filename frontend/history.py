"""What the pages of the history show: where there are histories, what a search finds in them, and
the life of a message."""

from __future__ import annotations

import time
from typing import Any

from django.http import HttpRequest

from broker.schema.message_history import HISTORY, PLACE_KEY
from frontend import addresses, figures, messages
from frontend.asking import FormError, ask, reason_of
from management.broker_client import BrokerError
from management.history_rows import EVENTS, is_of, record
from management.search_words import BadWords, HistoryWords, parse_history

HISTORIES_MOST = 50
"""Virtual hosts that one search without `vhost=` looks into."""
SHOWN_MOST = 100
LOOKED_MOST = 1000
"""Records that are looked through where only those of a queue or an exchange are wanted."""
OUTCOME_TONES = {"routed": "good", "unroutable": "bad", "refused": "bad", "delayed": "idle"}
EVENT_TONES = {
    "acked": "good",
    "delivered_no_ack": "good",
    "got_no_ack": "good",
    "rejected": "bad",
    "expired": "bad",
    "dropped": "bad",
    "delivery_limit": "bad",
    "discarded": "bad",
    "purged": "bad",
    "deleted": "bad",
    "dead_lettered": "warn",
    "requeued": "warn",
}


async def histories(request: HttpRequest) -> list[dict[str, Any]]:
    """The histories of the virtual hosts that the user may look into: figures and keys."""
    answer = await ask(
        request,
        "list",
        noun="queues",
        # Others may have a name that differs in case only.
        name=f"(?-i)^{HISTORY.replace('.', '[.]')}$",
        use_regex=True,
        sort="vhost",
        page=1,
        page_size=HISTORIES_MOST,
    )
    return [await _history(request, row["vhost"]) for row in answer["items"]]


async def _history(request: HttpRequest, vhost: str) -> dict[str, Any]:
    row = await ask(request, "item", noun="queues", vhost=vhost, name=HISTORY, flows=False)
    stream = row.get("stream") or {}
    keys = (stream.get("index") or {}).get("keys") or []
    return {
        "vhost": vhost,
        "messages": row.get("messages") or 0,
        "bytes": row.get("message_bytes") or 0,
        "since": stream.get("first_timestamp"),
        "keys": [key for key in keys if key != PLACE_KEY],
        "has_events": PLACE_KEY in keys,
        "address": addresses.queue(vhost, HISTORY),
    }


def words_of(text: str) -> HistoryWords:
    """What was written in the box. Raises FormError."""
    try:
        return parse_history(text, time.time_ns() // 1_000_000)
    except BadWords as error:
        raise FormError(f"{str(error)[0].upper()}{str(error)[1:]}.") from None


async def found(
    request: HttpRequest, words: HistoryWords, known: list[dict[str, Any]]
) -> dict[str, Any]:
    """What the histories have, the newest first. Raises FormError if none could be searched."""
    wanted = [row for row in known if words.vhost in (None, row["vhost"])]
    if not wanted:
        raise FormError(f"There is no history of a virtual host '{words.vhost}' that you may see.")
    rows: list[dict[str, Any]] = []
    reasons: list[str] = []
    refused: list[str] = []
    for history in wanted:
        named = f"{history['vhost']}: " if len(wanted) > 1 else ""
        try:
            records, lacking = await _in_one(request, words, history)
        except BrokerError as error:
            refused.append(named + reason_of(error))
            continue
        rows += records
        reasons += [named + reason for reason in lacking]
    if len(refused) == len(wanted):
        raise FormError("; ".join(refused))
    rows.sort(key=lambda row: (row["timestamp"], row["offset"]), reverse=True)
    return {
        "rows": rows[:SHOWN_MOST],
        "more": max(0, len(rows) - SHOWN_MOST),
        "reasons": reasons + refused,
        "has_vhosts": len({row["vhost"] for row in rows}) > 1,
    }


async def _in_one(
    request: HttpRequest, words: HistoryWords, history: dict[str, Any]
) -> tuple[list[dict[str, Any]], list[str]]:
    """What one history has. A value without a key is looked for under all its keys."""
    asked = words.words
    keys: list[str | None] = [asked.key]
    if asked.key is None and history["keys"]:
        keys = list(history["keys"])
    wanted = {"first": asked.first, "last": asked.last}
    is_filtered = words.queue is not None or words.exchange is not None
    most = LOOKED_MOST if is_filtered else SHOWN_MOST
    rows: dict[int, dict[str, Any]] = {}
    reasons: list[str] = []
    for key in keys:
        answer = await ask(
            request,
            "stream.search",
            vhost=history["vhost"],
            name=HISTORY,
            value=asked.value,
            max=most,
            truncate=0,
            **{name: value for name, value in {**wanted, "key": key}.items() if value is not None},
        )
        reasons += answer["reasons"]
        if len(answer["messages"]) == most:
            reasons.append(f"only the newest {most:,} messages with this key were looked at")
        for message in answer["messages"]:
            row = record(message)
            if is_of(row, words.queue, words.exchange):
                rows[row["offset"]] = _shown(history["vhost"], row)
    return list(rows.values()), reasons


def _shown(vhost: str, row: dict[str, Any]) -> dict[str, Any]:
    queues = row["queues"] or []
    return row | {
        "vhost": vhost,
        "address": addresses.life(vhost, row["offset"]),
        "tone": OUTCOME_TONES.get(row["outcome"] or "", "idle"),
        "more_queues": max(0, (row["queue_count"] or 0) - len(queues)),
        "may_replay": row["payload"] is not None or not row["payload_bytes"],
    }


async def life(request: HttpRequest, vhost: str, offset: int) -> dict[str, Any]:
    """The life of a message. Raises BrokerError."""
    answer: dict[str, Any] = await ask(
        request, "history.life", vhost=vhost, offset=offset, truncate=messages.SHOWN_BYTES
    )
    message = answer["record"]
    row = _shown(vhost, record(message))
    own = dict(message, properties=row["properties"])
    return answer | {
        "row": row,
        "message": messages.shown(own),
        "events": _timeline(answer["events"]),
        "places": [
            place
            | {
                "word": EVENTS.get(place["state"], place["state"]),
                "tone": EVENT_TONES.get(place["state"], "idle"),
            }
            for place in answer["places"]
        ],
    }


def _timeline(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events with words, and how long after the one before each came."""
    told = []
    before = None
    for event in events:
        tone = EVENT_TONES.get(event["event"], "idle")
        if event["event"] == "published":
            tone = OUTCOME_TONES.get(event["outcome"] or "", "idle")
        told.append(
            event
            | {
                "word": EVENTS.get(event["event"], event["event"]),
                "tone": tone,
                "later": "" if before is None else _later(event["timestamp"] - before),
            }
        )
        before = event["timestamp"]
    return told


def _later(milliseconds: int) -> str:
    if milliseconds < 1:
        return "within a millisecond"
    if milliseconds < 1000:
        return f"{milliseconds} ms later"
    return f"{figures.duration(milliseconds / 1000)} later"

"""The life of a message, told from the history of its vhost: the record of its publish names the
places that it got in queues, and events name the place that they happened at, and those that the
message got next."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from broker.kernel import clock
from broker.schema.control_schema import HistoryLife
from broker.schema.errors import NotFound
from broker.schema.message_history import (
    CONNECTION,
    CONSUMER,
    COUNT,
    EVENT,
    GAP,
    GAP_PLACE,
    HISTORY,
    PLACE,
    PLACE_KEY,
    PLACES,
    PLACES_MAX,
    QUEUE,
    QUEUES,
    SINCE,
    USER,
    outcome_of,
    place_of,
    queue_part,
)
from broker.server.control.requests import Request, RequestError, bad_request, handles
from broker.server.control.stream_searches import TIME_MOST, Searching
from broker.server.control.stream_verbs import browsed, shown_row, stream_of

EVENTS_AT_ONCE = 200
"""Events that are read of one place."""

STORED = "stored"
_TO_CLIENTS = ("delivered", "delivered_no_ack", "got", "got_no_ack")
_BY_CLIENTS = ("acked", "requeued", "rejected")
_READY = (STORED, "requeued")
"""After one of these a purge removes the message,"""
_HELD = (*_READY, "delivered", "got")
"""after one of these the deletion of the queue."""


@handles("history.life")
async def history_life(request: Request[HistoryLife]) -> Any:
    args = request.args
    vhost, queue = stream_of(request, HISTORY)
    row = await _row_at(queue, args.offset)
    if row is None:
        raise NotFound(f"the history of vhost '{vhost.name}' has no record {args.offset}")
    most = request.broker.config.get_bytes_max
    shown = args.truncate if args.truncate is not None and args.truncate >= 0 else most
    record = shown_row(row, min(shown, most))
    if EVENT in _headers(record):
        raise bad_request(f"record {args.offset} of the history is an event, not a message")
    life = Life(queue, record)
    index = request.broker.stream_indexes and request.broker.stream_indexes.of(vhost)
    if index is not None and PLACE_KEY in index.names(queue.incarnation):
        searching = Searching(request.broker, index, queue)
        time_limit = request.broker.config.stream_search_timeout
        try:
            async with asyncio.timeout(time_limit):
                with searching.entered():
                    await life.follow(searching)
        except TimeoutError:
            life.reasons.append(f"it took longer than {time_limit:g} s (stream_search_timeout)")
    return life.told()


async def _row_at(queue: Any, offset: int) -> Any:
    """The record at an offset, None if there is none (any more)."""
    if not 0 <= offset < 2**62:
        return None
    rows = await browsed(queue, queue.start_of(offset, clock.now()), 1, 1)
    return rows[0] if rows and rows[0][0] == offset else None


def _headers(row: dict[str, Any]) -> dict[str, Any]:
    headers: dict[str, Any] = (row["properties"] or {}).get("headers") or {}
    return headers


class Life:
    """What is known of one message."""

    def __init__(self, queue: Any, record: dict[str, Any]) -> None:
        self._queue = queue
        self._record = record
        headers = _headers(record)
        self._begin = int(record["timestamp"])
        self._places: dict[str, tuple[str, int]] = {}
        self._ahead: deque[str] = deque()
        self._events: list[dict[str, Any]] = []
        self._seen: set[int] = set()
        self.reasons: list[str] = []
        self._published = {
            "event": "published",
            "timestamp": record["timestamp"],
            "offset": record["offset"],
            "user": headers.get(USER),
            "connection": headers.get(CONNECTION),
            "exchange": record["exchange"],
            "routing_key": record["routing_key"],
            "queues": headers.get(QUEUES) or [],
            "outcome": outcome_of(headers),
        }
        self._go_to(headers, self._begin)

    def _go_to(self, headers: dict[str, Any], time: int) -> None:
        """The message got to the places that these headers name."""
        names, places = headers.get(QUEUES) or [], headers.get(PLACES) or []
        for name, place in zip(names, places, strict=False):
            if place and place not in self._places:
                self._places[place] = name, time
                self._ahead.append(place)

    async def follow(self, searching: Searching) -> None:
        """Reads the events of all places, as far as they lead."""
        self.reasons += await searching.prepare()
        own = place_of(self._queue.incarnation, self._record["offset"])
        await self._read(searching, own)
        followed = 0
        while self._ahead:
            if followed == PLACES_MAX:
                self.reasons.append(f"the message got to more than {PLACES_MAX} places")
                break
            followed += 1
            await self._read(searching, self._ahead.popleft())
        for part in sorted({queue_part(place) for place in self._places}):
            await self._read(searching, part)
        await self._read(searching, GAP_PLACE)

    async def _read(self, searching: Searching, place: str) -> None:
        answer = await searching.look(
            PLACE_KEY, place.encode(), self._begin, TIME_MOST, EVENTS_AT_ONCE
        )
        self.reasons += [reason for reason in answer.reasons if reason not in self.reasons]
        for message in answer.messages:
            try:
                row = await _row_at(self._queue, message.offset)
            except RequestError as error:
                self.reasons.append(str(error))
                return
            if row is not None and message.offset not in self._seen:
                self._seen.add(message.offset)
                self._note(shown_row(row, 0))

    def _note(self, row: dict[str, Any]) -> None:
        headers = _headers(row)
        event = headers.get(EVENT)
        if event == GAP:
            since = headers.get(SINCE, 0)
            self.reasons.append(
                f"{headers.get(COUNT)} events of this virtual host were given up between"
                f" {since} and {row['timestamp']} ms (history_events_buffer)"
            )
            return
        self._events.append(
            {
                "event": event,
                "timestamp": row["timestamp"],
                "offset": row["offset"],
                "queue": headers.get(QUEUE),
                "place": headers.get(PLACE),
                "user": headers.get(USER),
                "connection": headers.get(CONNECTION),
                "consumer_tag": headers.get(CONSUMER),
                "exchange": row["exchange"] if QUEUES in headers else None,
                "routing_key": row["routing_key"] if QUEUES in headers else None,
                "queues": headers.get(QUEUES) or [],
            }
        )
        self._go_to(headers, row["timestamp"])

    def told(self) -> dict[str, Any]:
        """The answer."""
        events = sorted(self._events, key=lambda event: (event["timestamp"], event["offset"]))
        last = {
            place: {"queue": name, "state": STORED, "since": since, "client": {}}
            for place, (name, since) in self._places.items()
        }
        told = [event for event in events if _changes(event, last)]
        return {
            "record": self._record,
            "events": [self._published, *told],
            "places": [
                {key: row[key] for key in ("queue", "state", "since")} for row in last.values()
            ],
            "kept": bool(self._places),
            "complete": not self.reasons,
            "reasons": self.reasons,
        }


def _changes(event: dict[str, Any], last: dict[str, dict[str, Any]]) -> bool:
    """Notes what an event makes of its place, and who did it. Whether it belongs to the life: what
    happened to a whole queue does where the message still was in it."""
    name, place = event["event"], event["place"] or ""
    if place in last:
        row = last[place]
        if name in _TO_CLIENTS:
            row["client"] = {key: event[key] for key in ("user", "connection", "consumer_tag")}
        elif name in _BY_CLIENTS:
            event |= row["client"]
        if name not in ("copied", "replayed"):
            row["state"], row["since"] = name, event["timestamp"]
        return True
    if name not in ("purged", "deleted"):
        return True
    ended = _READY if name == "purged" else _HELD
    held = [
        row
        for each, row in last.items()
        if queue_part(each) == place
        and row["since"] <= event["timestamp"]
        and row["state"] in ended
    ]
    for row in held:
        row["state"], row["since"] = name, event["timestamp"]
    return bool(held)

"""Live pages: one WebSocket a tab carries its subscriptions.

One subscription at the broker serves all tabs that look at the same thing with the same rights.

From the page: `{"type": "subscribe", "id": 1, "topic": "item", "noun": "queues", "key": [...]}`
(`rows` takes `keys`, `overview` and `events` nothing) and `{"type": "unsubscribe", "id": 1}`. To
the page: `{"id", "event", "at", "data"}`, where `event` is `start` (data replaces what was known),
`delta` (changed values only, under dotted keys), `away` (the broker is down, a start follows when
it is back), `ended` (with the reason), or the name of a broker event.

Nothing is queued for a slow page: what it has not taken yet is merged, and the newest value wins.
What one page and one user may follow is bounded (`live_…` in `broker/settings/config.py`): what
goes beyond is `ended` with the reason, and the socket of one page too many closes with `TOO_MANY`.
One request of each user at a time is put to the broker, so that requests of others do not wait
behind them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from typing import Any, ClassVar

from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings

from broker.schema.control_schema import NOUNS
from broker.serving.json_nesting import is_nested_over
from broker.settings.bounds import LIVE_KEYS_MAX
from management.appliance import broker
from management.broker_client import BrokerError, Push

log = logging.getLogger(__name__)

DEPTH_MAX = 8
EVENTS_AT_MOST = 200
KEY_PARTS_MAX = 8
KEY_PART_MAX = 1024
"""Characters of a name in a key; AMQP's have 255 octets at most."""
PROTOCOL_ERROR = 4400
TOO_MANY = 4429


class Viewer:
    """A user with pages open: how many, and which of them asks the broker next."""

    here: ClassVar[dict[str, Viewer]] = {}

    def __init__(self, name: str) -> None:
        self.name = name
        self.sockets = 0
        self.turn = asyncio.Lock()

    @classmethod
    def enter(cls, name: str) -> Viewer | None:
        """One page more; None if the user has as many as are allowed."""
        viewer = cls.here.setdefault(name, cls(name))
        if viewer.sockets >= settings.APPLIANCE.live_user_sockets_max:
            return None
        viewer.sockets += 1
        return viewer

    def leave(self) -> None:
        self.sockets -= 1
        if not self.sockets:
            del self.here[self.name]


class LiveConsumer(AsyncWebsocketConsumer):
    """The socket of one tab. `SessionSocket` has checked the session and closes it when it ends."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            # Also where the session has ended, and with it this task.
            self._leave()

    async def connect(self) -> None:
        self.viewer = Viewer.enter(self.scope["user"].name)
        self.wanted: dict[int, Outlet] = {}
        self.ready: dict[int, dict[str, Any]] = {}
        self.has_ready = asyncio.Event()
        await self.accept()
        if self.viewer is None:
            most = settings.APPLIANCE.live_user_sockets_max
            await self.close(
                TOO_MANY, f"live pages of one user: at most {most} (live_user_sockets_max)"
            )
            return
        self.sender = asyncio.create_task(self._send_ready(), name="live sender")

    def _leave(self) -> None:
        if not hasattr(self, "wanted"):
            return
        for outlet in self.wanted.values():
            outlet.close()
        self.wanted.clear()
        if hasattr(self, "sender"):
            self.sender.cancel()
        if self.viewer is not None:
            self.viewer.leave()
            self.viewer = None

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if self.viewer is None:
            return
        try:
            if text_data is None:
                raise ValueError("no text")
            if is_nested_over(text_data, DEPTH_MAX):
                raise ValueError("the request is nested too deeply")
            request = json.loads(text_data)
            number = request["id"]
            if type(number) is not int:
                raise ValueError("the id is not a whole number")
            if request["type"] == "subscribe":
                await self._subscribe(self.viewer, number, _arguments(request))
            else:
                self._unsubscribe(number)
        except (ValueError, TypeError, KeyError) as error:
            log.debug("live socket: %r", error)
            self._leave()  # what is on its way behind is not looked at
            await self.close(PROTOCOL_ERROR)

    async def _subscribe(self, viewer: Viewer, number: int, arguments: dict[str, Any]) -> None:
        self._unsubscribe(number)
        most = settings.APPLIANCE.live_page_subscriptions_max
        if len(self.wanted) >= most:
            reason = (
                f"this page follows {most} things at a time already, and no more are allowed"
                " (live_page_subscriptions_max)"
            )
            data = {"status": 429, "error": "limit_reached", "reason": reason}
            # Not put aside: who does not read it is not read either.
            await self._send_one(number, "ended", 0, data)
            return
        async with viewer.turn:
            topic = Topic.of(viewer.name, arguments)
            self.wanted[number] = Outlet(number, self._take, topic)
            await topic.answered.wait()

    def _unsubscribe(self, number: int) -> None:
        outlet = self.wanted.pop(number, None)
        if outlet is not None:
            outlet.close()
        self.ready.pop(number, None)

    def _take(self, number: int, event: str, at: int, data: Any) -> None:
        if event == "ended":
            outlet = self.wanted.pop(number, None)
            if outlet is not None:
                outlet.close()
        waiting = self.ready.get(number)
        if event == "delta" and waiting is not None and waiting["event"] in ("start", "delta"):
            waiting["at"] = at
            waiting["data"] = merged(waiting["data"], data)
        elif waiting is not None and "events" in waiting:
            waiting["events"] = [*waiting["events"], (event, at, data)][-EVENTS_AT_MOST:]
        elif event in ("start", "delta", "away", "ended"):
            self.ready[number] = {"event": event, "at": at, "data": data}
        else:
            self.ready[number] = {"event": "", "events": [(event, at, data)]}
        self.has_ready.set()

    async def _send_ready(self) -> None:
        while True:
            await self.has_ready.wait()
            self.has_ready.clear()
            while self.ready:
                number = next(iter(self.ready))
                found = self.ready.pop(number)
                single = [(found["event"], found.get("at"), found.get("data"))]
                for event, at, data in found.get("events", single):
                    await self._send_one(number, event, at, data)

    async def _send_one(self, number: int, event: str, at: int, data: Any) -> None:
        message = {"id": number, "event": event, "at": at, "data": data}
        await self.send(json.dumps(message, separators=(",", ":"), default=_plain))


class Outlet:
    """Where a topic's pushes go: one subscription of one tab."""

    def __init__(self, number: int, take: Any, topic: Topic) -> None:
        self.number = number
        self.take = take
        self.topic = topic
        topic.join(self)

    def push(self, event: str, at: int, data: Any) -> None:
        self.take(self.number, event, at, data)

    def close(self) -> None:
        self.topic.leave(self)


class Topic:
    """One subscription at the broker and everybody in this process who wants it."""

    open: ClassVar[dict[tuple[str, str], Topic]] = {}

    def __init__(self, user: str, arguments: dict[str, Any]) -> None:
        self.user = user
        self.arguments = arguments
        self.outlets: set[Outlet] = set()
        self.state: Any = None
        self.at = 0
        self.answered = asyncio.Event()
        """The broker has begun the pushes or refused them, or it is away."""
        self.task: asyncio.Task[None] | None = None

    @classmethod
    def of(cls, user: str, arguments: dict[str, Any]) -> Topic:
        """The open topic of these arguments and these rights, or a new one."""
        key = (user, json.dumps(arguments, sort_keys=True))
        if key not in cls.open:
            cls.open[key] = cls(user, arguments)
        return cls.open[key]

    def join(self, outlet: Outlet) -> None:
        self.outlets.add(outlet)
        if self.task is None or self.task.done():
            self.state = None
            self.answered.clear()
            self.task = asyncio.create_task(self._follow(), name="live topic")
        elif self.state is not None:
            outlet.push("start", self.at, self.state)

    def leave(self, outlet: Outlet) -> None:
        self.outlets.discard(outlet)
        if not self.outlets:
            self.open.pop((self.user, json.dumps(self.arguments, sort_keys=True)), None)
            self.answered.set()
            if self.task is not None and self.task is not asyncio.current_task():
                self.task.cancel()

    async def _follow(self) -> None:
        try:
            pushes = broker().subscribe(as_user=self.user, **self.arguments)
            async with contextlib.aclosing(pushes):
                async for push in pushes:
                    self._take(push)
        except BrokerError as error:
            self._tell("ended", 0, {"status": error.status, "reason": error.reason})

    def _take(self, push: Push) -> None:
        if push.event == "resync":
            return
        data = push.data
        if self.arguments["topic"] in ("overview", "item") and push.event in ("start", "delta"):
            # Pages have their charts' past in their HTML, and take new points from the state.
            data = {key: value for key, value in data["state"].items() if key != "at"}
        if push.event == "start":
            self.state, self.at = data, push.at
        elif push.event == "delta" and self.state is not None:
            self.state, self.at = merged(self.state, data), push.at
        self._tell(push.event, push.at, data)

    def _tell(self, event: str, at: int, data: Any) -> None:
        self.answered.set()
        for outlet in list(self.outlets):
            outlet.push(event, at, data)


def merged(known: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`known` with the changed values put in; `rows` are pairs of key and values."""
    result = {**known, **changes}
    if "rows" in known and "rows" in changes:
        rows = {tuple(key): values for key, values in known["rows"]}
        for key, values in changes["rows"]:
            before = rows.get(tuple(key))
            # None is a row that was removed.
            rows[tuple(key)] = {**before, **values} if before and values else values
        result["rows"] = [[list(key), values] for key, values in rows.items()]
    return result


def _arguments(request: dict[str, Any]) -> dict[str, Any]:
    """The arguments of verb `subscribe` that a page asks for. Raises ValueError and the like."""
    topic = request["topic"]
    arguments: dict[str, Any] = {"topic": topic, "history_s": 1}
    if topic in ("rows", "item"):
        if request["noun"] not in NOUNS:
            raise ValueError(f"no noun {request['noun']!r}")
        arguments["noun"] = request["noun"]
    elif topic not in ("overview", "events"):
        raise ValueError(f"no topic {topic!r}")
    if topic == "rows":
        arguments["keys"] = [_key(key) for key in request["keys"]]
        if len(arguments["keys"]) > LIVE_KEYS_MAX:
            raise ValueError(f"more than {LIVE_KEYS_MAX} rows")
    if topic == "item":
        arguments["key"] = _key(request["key"])
    if request.get("vhost"):
        (arguments["vhost"],) = _key([request["vhost"]])
    return arguments


def _key(parts: list[Any]) -> list[str]:
    """A row's key as text. Raises ValueError and TypeError."""
    key = [str(part) for part in parts]
    if len(key) > KEY_PARTS_MAX or any(len(part) > KEY_PART_MAX for part in key):
        raise ValueError("a key of too many or too long parts")
    return key


def _plain(value: Any) -> str:
    """Bytes in a pushed value, as text."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    raise TypeError(f"{type(value).__name__} cannot be pushed")

"""Pushes of one control connection: a whole state first, then what changed, once a second.

Each user's subscriptions are bounded and served by a task of their own, so that one user takes
neither the places nor the time of another.

A change is always against what was last sent, so a peer that reads slowly is skipped until it has
taken the last push. Skipped chart points and events cannot be made up for: a `resync` follows.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from broker.schema.control_schema import EVENTS, NOUNS, Item, Subscribe, Unsubscribe
from broker.server.control.history_verbs import history_of
from broker.server.control.lists import find_by_key
from broker.server.control.node_verbs import overview_of, totals_for
from broker.server.control.requests import (
    Caller,
    Request,
    RequestError,
    bad_request,
    handles,
    not_found,
)
from broker.server.control.views import View
from broker.server.pace import Pace
from broker.settings.bounds import LIVE_KEYS_MAX
from broker.stats import Totals

if TYPE_CHECKING:
    from broker.server.app import Broker

log = logging.getLogger(__name__)

HISTORY_MAX_S = 366 * 86_400
_EVENTS_KEPT = 1_000


class Subscriptions:
    """The subscriptions of one control connection, a share for each user."""

    def __init__(
        self,
        broker: Broker,
        push: Callable[[dict[str, Any]], None],
        is_writable: Callable[[], bool],
    ) -> None:
        self._broker = broker
        self._push = push
        self._is_writable = is_writable
        self._next = 0
        self._shares: dict[str, Share] = {}
        self._share_of: dict[int, Share] = {}

    def __len__(self) -> int:
        return len(self._share_of)

    def add(self, caller: Caller, args: Subscribe) -> int:
        """Checks and begins a subscription. Raises RequestError."""
        share = self._shares.get(caller.name)
        if share is not None and caller.user is not None:
            share.check_room(len(args.keys or ()))
        elif len(args.keys or ()) > self._broker.config.live_user_rows_max:
            raise too_many_rows(self._broker)
        subscription = make(self._broker, caller, args)
        if share is None:
            share = self._shares[caller.name] = Share(
                self._broker, self._push, self._is_writable, self._forget
            )
        self._next += 1
        self._share_of[self._next] = share
        share.add(self._next, subscription)
        return self._next

    def remove(self, sub: int) -> None:
        share = self._share_of.get(sub)
        if share is None:
            raise not_found(f"there is no subscription {sub}")
        share.remove(sub)

    def publish(self, event: str, data: Mapping[str, Any]) -> None:
        """Notes an event for subscriptions of topic `events`."""
        if event not in EVENTS or not self._shares:
            return
        plain = {
            name: value for name, value in data.items() if isinstance(value, str | int | float)
        }
        for share in self._shares.values():
            share.note(event, plain)

    def close(self) -> None:
        for share in self._shares.values():
            share.close()
        self._shares.clear()
        self._share_of.clear()

    def _forget(self, share: Share, sub: int) -> None:
        """A subscription is over; with its last one a share is."""
        self._share_of.pop(sub, None)
        if not share.active:
            share.close()
            for name, each in list(self._shares.items()):
                if each is share:
                    del self._shares[name]


class Share:
    """The subscriptions of one user and the task that serves them: however much one user follows,
    the pushes of others come in time. `over` is called with each that ended."""

    def __init__(
        self,
        broker: Broker,
        push: Callable[[dict[str, Any]], None],
        is_writable: Callable[[], bool],
        over: Callable[[Share, int], None],
    ) -> None:
        self._broker = broker
        self._push = push
        self._is_writable = is_writable
        self._over = over
        self._rows = 0
        self.active: dict[int, Subscription] = {}
        self._wake = asyncio.Event()
        broker.sampling.listeners.append(self._wake.set)
        self._task = asyncio.create_task(self._serve(), name="control pushes")

    def check_room(self, rows: int) -> None:
        """Raises RequestError if the user may not follow one thing more, of `rows` rows."""
        most = self._broker.config.live_user_subscriptions_max
        if len(self.active) >= most:
            raise RequestError(
                "limit_reached",
                f"this user follows {most} things at a time already, and no more are allowed"
                " (live_user_subscriptions_max); close other pages",
            )
        if self._rows + rows > self._broker.config.live_user_rows_max:
            raise too_many_rows(self._broker)

    def add(self, sub: int, subscription: Subscription) -> None:
        self.active[sub] = subscription
        self._rows += len(subscription.args.keys or ())
        self._wake.set()

    def remove(self, sub: int) -> None:
        subscription = self.active.pop(sub, None)
        if subscription is not None:
            self._rows -= len(subscription.args.keys or ())
            self._over(self, sub)

    def note(self, event: str, data: dict[str, Any]) -> None:
        """Keeps an event for those who follow the topic `events`."""
        for subscription in self.active.values():
            if isinstance(subscription, Events):
                subscription.note(event, data)
                self._wake.set()

    def close(self) -> None:
        self.active.clear()
        self._broker.sampling.listeners.remove(self._wake.set)
        task = self._task
        del self._task  # one that is cancelled keeps its frame, and so this
        if task is not asyncio.current_task():
            task.cancel()

    async def _serve(self) -> None:
        await self._wake.wait()
        while self.active:
            self._wake.clear()
            for sub, subscription in list(self.active.items()):
                if sub not in self.active:
                    continue
                try:
                    await self._serve_one(sub, subscription)
                except asyncio.CancelledError:
                    raise
                except Exception as error:
                    self._end(sub, subscription, error)
            if self.active:
                await self._wake.wait()

    async def _serve_one(self, sub: int, subscription: Subscription) -> None:
        subscription.recheck()
        if not self._is_writable():
            subscription.skipped = True
            return
        for event, data in await subscription.pushes():
            if sub in self.active:
                self._send(sub, subscription, event, data)

    def _end(self, sub: int, subscription: Subscription, error: Exception) -> None:
        self.remove(sub)
        if isinstance(error, RequestError):
            data = {"status": error.status, "error": error.error, "reason": error.reason}
        else:
            log.error("a control subscription failed", exc_info=error)
            reason = f"the subscription failed inside the broker: {type(error).__name__}"
            data = {"status": 500, "error": "internal_error", "reason": reason}
        self._send(sub, subscription, "ended", data)

    def _send(self, sub: int, subscription: Subscription, event: str, data: Any) -> None:
        subscription.sequence += 1
        self._push(
            {
                "event": event,
                "sub": sub,
                "seq": subscription.sequence,
                "at": time.time_ns() // 1_000_000,
                "data": data,
            }
        )


class Subscription:
    """One subscription: what was sent, and how to find what is new."""

    def __init__(self, broker: Broker, caller: Caller, args: Subscribe) -> None:
        self.broker = broker
        self.caller = caller
        self.args = args
        self.sequence = 0
        self.skipped = False
        self.started = False
        self._access_version = broker.access.version
        self.check()

    def check(self) -> None:
        """Raises RequestError unless the caller may see this."""

    def recheck(self) -> None:
        """Checks again when users or permissions changed since."""
        version = self.broker.access.version
        if version == self._access_version:
            return
        self._access_version = version
        if self.caller.user is not None:
            user = self.broker.access.users.get(self.caller.name)
            if user is None or user.epoch != self.caller.user.epoch:
                raise RequestError("not_authorised", "the user has changed; sign in again")
            self.caller.user = user
        self.caller.require("management")
        self.check()

    async def pushes(self) -> list[tuple[str, Any]]:
        """What to send now."""
        raise NotImplementedError


class Charted(Subscription):
    """A state with chart data: topics `overview` and `item`."""

    def __init__(self, broker: Broker, caller: Caller, args: Subscribe) -> None:
        super().__init__(broker, caller, args)
        self._sent: dict[str, Any] = {}
        self._round = -1

    async def state(self) -> dict[str, Any]:
        raise NotImplementedError

    async def history(self) -> dict[str, Any]:
        raise NotImplementedError

    def point(self) -> dict[str, float]:
        raise NotImplementedError

    async def pushes(self) -> list[tuple[str, Any]]:
        rounds = self.broker.stats.rounds
        if rounds == self._round and self.started:
            return []
        missed = self.skipped and self.started
        self._round = rounds
        state = await self.state()
        flat = flatten(state)
        if not self.started or missed:
            self.started, self.skipped = True, False
            self._sent = flat
            start = ("start", {"state": state, "history": await self.history()})
            return [("resync", None), start] if missed else [start]
        changed = changes(self._sent, flat)
        self._sent = flat
        return [("delta", {"state": changed, "point": self.point()})]

    def span(self) -> tuple[int, int]:
        now = time.time_ns() // 1_000_000
        return now - min(max(self.args.history_s, 1), HISTORY_MAX_S) * 1000, now


class OverviewTopic(Charted):
    """Topic `overview`: the node as far as the caller sees it, or one vhost."""

    def check(self) -> None:
        if self.args.vhost is not None:
            self.caller.vhost(self.args.vhost)

    async def state(self) -> dict[str, Any]:
        return await overview_of(self.broker, self.caller, self.args.vhost, {})

    async def history(self) -> dict[str, Any]:
        key = [self.args.vhost] if self.args.vhost is not None else []
        return await history_of(self.broker, self.caller, "overview", key, *self.span())

    def point(self) -> dict[str, float]:
        return totals_point(totals_for(self.broker, self.caller, self.args.vhost))


class ItemTopic(Charted):
    """Topic `item`: one queue, exchange, connection, channel or vhost."""

    def check(self) -> None:
        self._find()

    def _find(self) -> tuple[View, Any]:
        noun = self.args.noun
        if noun is None or noun not in NOUNS or self.args.key is None:
            raise bad_request("topic item needs a noun and a key")
        self.caller.require(NOUNS[noun].item_tag)
        return find_by_key(self.broker, self.caller, noun, self.args.key)

    async def state(self) -> dict[str, Any]:
        view, thing = self._find()
        return view.item(thing, Item(noun=self.args.noun or "", flows=False))

    async def history(self) -> dict[str, Any]:
        view, _ = self._find()
        if view.kind:
            return await history_of(
                self.broker, self.caller, view.kind, self.args.key or [], *self.span()
            )
        if self.args.noun == "vhosts":
            return await history_of(
                self.broker, self.caller, "vhost", self.args.key or [], *self.span()
            )
        return {"step_ms": 1000, "times": [], "series": {}}

    def point(self) -> dict[str, float]:
        view, thing = self._find()
        if self.args.noun == "vhosts":
            return totals_point(self.broker.stats.vhost(thing.name))
        if not view.kind:
            return {}
        gauge = self.broker.stats.gauge(view.kind, thing[1] if view.kind == "exchange" else thing)
        if gauge is None or gauge.history is None:
            return {}
        counters = gauge.history.counters
        return {
            name: gauge.rate(name) if name in counters else value
            for name, value in zip(gauge.names, gauge.newest, strict=False)
        }


class Rows(Subscription):
    """Topic `rows`: the moving fields of some rows of a list."""

    def __init__(self, broker: Broker, caller: Caller, args: Subscribe) -> None:
        self._sent: dict[tuple[str, ...], dict[str, Any]] = {}
        self._round = -1
        super().__init__(broker, caller, args)

    def check(self) -> None:
        noun, keys = self.args.noun, self.args.keys
        if noun is None or noun not in NOUNS or keys is None:
            raise bad_request("topic rows needs a noun and keys")
        if len(keys) > LIVE_KEYS_MAX:
            raise bad_request(f"topic rows: more than {LIVE_KEYS_MAX} keys")
        length = len(NOUNS[noun].key)
        for key in keys:
            if len(key) != length:
                raise bad_request(f"a key of {noun} is [{', '.join(NOUNS[noun].key)}]")
        self.caller.require(NOUNS[noun].list_tag)
        self._sent = {key: row for key, row in self._sent.items() if self._row(key) is not None}

    def _row(self, key: tuple[str, ...]) -> dict[str, Any] | None:
        try:
            view, thing = find_by_key(self.broker, self.caller, self.args.noun or "", list(key))
        except RequestError:
            return None
        return view.live(thing)

    async def pushes(self) -> list[tuple[str, Any]]:
        rounds = self.broker.stats.rounds
        if rounds == self._round and self.started:
            return []
        self._round, self.skipped = rounds, False
        pace = Pace()
        rows: list[list[Any]] = []
        for key in dict.fromkeys(tuple(key) for key in self.args.keys or []):
            row = self._row(key)
            known = self._sent.get(key)
            if row is None:
                if known is not None or not self.started:
                    rows.append([list(key), None])
                self._sent.pop(key, None)
            else:
                changed = row if known is None else changes(known, row)
                if changed:
                    rows.append([list(key), changed])
                self._sent[key] = row
            await pace()
        if not self.started:
            self.started = True
            return [("start", {"rows": rows})]
        return [("delta", {"rows": rows})] if rows else []


class Events(Subscription):
    """Topic `events`: what happens, as far as the caller may know of it."""

    def __init__(self, broker: Broker, caller: Caller, args: Subscribe) -> None:
        super().__init__(broker, caller, args)
        self._waiting: deque[tuple[str, dict[str, Any]]] = deque()
        self._lost = False

    def note(self, event: str, data: dict[str, Any]) -> None:
        """Keeps an event for the next push, if the caller may see it."""
        if not self.caller.sight.of_event(event, data):
            return
        if len(self._waiting) >= _EVENTS_KEPT:
            self._waiting.clear()
            self._lost = True
        self._waiting.append((event, data))

    async def pushes(self) -> list[tuple[str, Any]]:
        found: list[tuple[str, Any]] = []
        if not self.started:
            self.started = True
            found.append(("start", {}))
        if self._lost:
            self._lost = False
            found += [("resync", None), ("start", {})]
        # Rights may have been taken away since an event was noted.
        sight = self.caller.sight
        found += [(event, data) for event, data in self._waiting if sight.of_event(event, data)]
        self._waiting.clear()
        self.skipped = False
        return found


TOPICS: dict[str, type[Subscription]] = {
    "overview": OverviewTopic,
    "item": ItemTopic,
    "rows": Rows,
    "events": Events,
}


def too_many_rows(broker: Broker) -> RequestError:
    most = broker.config.live_user_rows_max
    return RequestError(
        "limit_reached",
        f"the pages of one user may follow {most} rows at a time (live_user_rows_max); close other"
        " pages or show fewer rows",
    )


def make(broker: Broker, caller: Caller, args: Subscribe) -> Subscription:
    """A subscription of the wanted topic. Raises RequestError if the caller may not have it."""
    return TOPICS[args.topic](broker, caller, args)


@handles("subscribe")
async def subscribe(request: Request[Subscribe]) -> Any:
    return {"sub": request.session.subscriptions.add(request.caller, request.args)}


@handles("unsubscribe")
async def unsubscribe(request: Request[Unsubscribe]) -> Any:
    request.session.subscriptions.remove(request.args.sub)
    return {}


def totals_point(totals: Totals) -> dict[str, float]:
    """The newest point of each series of a total: rates of counters, levels as they are."""
    point = {name: totals.rate(name) for name in totals.counters}
    point.update(totals.levels)
    return point


def flatten(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The leaves of nested maps under dotted keys; lists are leaves."""
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        if isinstance(inner, Mapping) and inner:
            flat.update(flatten(inner, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = inner
    return flat


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """What is different in the new map; removed keys are nil."""
    changed = {key: value for key, value in new.items() if key not in old or old[key] != value}
    for key in old.keys() - new.keys():
        changed[key] = None
    return changed

"""Queues, exchanges and bindings in their order, kept from one request to the next.

The order is by vhost, then by name (bindings: by source, destination and key). What was declared or
deleted since the last request is put in or taken out; nothing is sorted again as a whole. Each
vhost has its own lists, so that a caller gets those of the vhosts it sees.
"""

from __future__ import annotations

import asyncio
import heapq
from bisect import insort
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter, ge, le
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from broker.kernel.reached import Reached
from broker.kernel.through import Through, long_list
from broker.kernel.wide_dict import WideDict
from broker.routing.binding import Binding
from broker.server.control.encoding import full_name
from broker.server.freeing import Freeing
from broker.server.pace import Pace

if TYPE_CHECKING:
    from broker.queues.types import MessageQueue
    from broker.routing.exchange import BoundExchange
    from broker.server.app import Broker
    from broker.vhosts.vhost import VHost

_STEP = 200
"""Objects between two looks at the clock."""
_CHUNK = 500
_FEW = 200
"""Up to this number, new ones are inserted one by one; more are merged."""

WHOLE_LISTS_AT_ONCE = 2
"""Lists without pages that are built at a time: each is as large as what it lists. Others wait."""

_PASSES_MAX = 3
"""So often a list is brought up in one request."""

_KEPT = 12
"""Lists in another order than by name, names of lists, and what filters found in these; each is a
pointer a thing."""

_name = attrgetter("name")


class Bound(NamedTuple):
    """A binding and the vhost it is in."""

    vhost: str
    binding: Any


class Roster:
    """The queues or exchanges of one vhost, by name."""

    def __init__(self, freeing: Freeing) -> None:
        self.things: list[Any] = []
        self._version: object = None
        self._freeing = freeing

    async def bring_up(self, present: dict[str, Any], version: object, pace: Pace) -> list[Any]:
        """The list as of now. `version` changes with every declaration and deletion."""
        # Where clients declare without a pause, the last pass but one is new enough.
        for _ in range(_PASSES_MAX):
            if (version, len(present)) == (self._version, len(self.things)):
                break
            known = self.things
            kept: list[Any] = long_list()
            for part in _parts(known):
                kept += [thing for thing in part if present.get(thing.name) is thing]
                await pace()
            added: list[Any] = long_list()
            if len(kept) != len(present):
                there = Reached()
                for part in _parts(kept):
                    for thing in part:
                        there.add(thing)
                    await pace()
                all_of_them = Through(present.values())
                while part := all_of_them.piece(_STEP):
                    added += [thing for thing in part if thing not in there]
                    await pace()
            if len(added) <= _FEW:
                for thing in added:
                    insort(kept, thing, key=_name)
            else:
                await move(added, kept, pace)
                kept = await in_order(kept, _name, pace)
            self.things, self._version = kept, version
            self._freeing.add(known)
            del known
            if len(kept) == len(present):
                break
        return self.things


class BindingRoster:
    """The bindings of one vhost by source, destination and key; one list for each exchange, which
    follows what is bound and unbound."""

    def __init__(self, freeing: Freeing) -> None:
        self._implicit: list[Bound] = []
        self._implicit_version: object = None
        self._sorted: dict[str, tuple[Any, int, list[Bound]]] = {}
        self._freeing = freeing

    async def end(self, pace: Pace) -> None:
        """The vhost is deleted."""
        implicit, self._implicit = self._implicit, []
        self._freeing.add(implicit)
        while self._sorted:
            self._freeing.add(self._sorted.popitem()[1][2])
            await pace()

    async def bring_up(
        self, vhost: VHost, queues: list[Any], exchanges: list[Any], version: object, pace: Pace
    ) -> list[Bound]:
        """The list as of now of those from `exchanges`; `queues` are all of the vhost, not older
        than `version`. Both are in order."""
        found: list[Bound] = long_list()
        for part in _parts(list(self._sorted)):
            for name in part:
                if name in self._sorted and name not in vhost.exchanges:
                    self._freeing.add(self._sorted.pop(name)[2])
            await pace()
        for exchange in exchanges:
            if not exchange.name:
                bound = await self._implicit_ones(vhost, queues, version, pace)
            else:
                bound = await self._bound_to(vhost, exchange, pace)
            await extend(found, bound, pace)
            await pace()
        if not vhost.has_leaving:
            return found
        kept: list[Bound] = long_list()
        for part in _parts(found):
            kept += [bound for bound in part if not vhost.is_leaving(bound.binding)]
            await pace()
        self._freeing.add(found)
        return kept

    async def _bound_to(self, vhost: VHost, exchange: BoundExchange, pace: Pace) -> list[Bound]:
        """Those of one exchange by destination and key."""
        known = self._sorted.get(exchange.name)
        if known is not None and known[0] is exchange and known[1] == exchange.changes:
            return known[2]
        changes = exchange.changes
        present: list[Any] = long_list()
        for place, binding in enumerate(vhost.bindings(exchange.name)):
            present.append(binding)
            if place % _STEP == 0:
                await pace()
        before = known[2] if known is not None else []
        bound = await _followed(before, present, vhost.name, pace)
        self._sorted[exchange.name] = (exchange, changes, bound)
        known = None
        self._freeing.add(before)
        self._freeing.add(present)
        return bound

    async def _implicit_ones(
        self, vhost: VHost, queues: list[Any], version: object, pace: Pace
    ) -> list[Bound]:
        """Those of the default exchange: each queue by its name."""
        if self._implicit_version != version:
            known: WideDict[str, Bound] = WideDict()
            for part in _parts(self._implicit):
                for bound in part:
                    known[bound.binding.destination] = bound
                await pace()
            made: list[Bound] = long_list()
            for part in _parts(queues):
                made += [
                    known.pop(name) if (name := queue.name) in known else _implicit(vhost, queue)
                    for queue in part
                ]
                await pace()
            while known:
                known.popitem()
                await pace()
            before, self._implicit, self._implicit_version = self._implicit, made, version
            self._freeing.add(before)
        return self._implicit


def _implicit(vhost: VHost, queue: MessageQueue) -> Bound:
    """The binding of the default exchange that leads to a queue."""
    return Bound(vhost.name, Binding("", queue.name, "queue", queue.name, {}))


class Kept:
    """Lists of things and of what never changes of them, each until a thing comes or goes.

    `held` has by scope the version and the list, or None where it was wanted once; the newest come
    last. `version` tells the version of now.
    """

    def __init__(
        self,
        held: dict[object, tuple[object, list[Any] | None]],
        version: Callable[[], object],
        freeing: Freeing,
    ) -> None:
        self._held = held
        self._version = version
        self._freeing = freeing

    @property
    def version(self) -> object:
        """Changes with every one that comes or goes."""
        return self._version()

    async def kept(self, scope: object, make: Callable[[], Awaitable[list[Any]]]) -> list[Any]:
        """The list that `make` makes of things and of what never changes of them, not to be
        changed. `scope` names the things and what is made of them: the list is kept under it for
        the next request, as long as nothing comes or goes. None: it is not kept."""
        version = self.version
        if scope is None:
            return await make()
        made, found = self._held.pop(scope, (None, None))
        if made != version or found is None:
            if found is not None:
                self._freeing.add(found)
            found = await make()
            if self.version != version:
                return found  # something came or went meanwhile
        self._keep(scope, version, found)
        return found

    def is_sorted(self, scope: object, things: list[Any]) -> bool:
        """Whether to ask for the order of all things even if few are wanted: it is kept, or it was
        asked for before and nothing came or went since. Where things come and go all the time,
        picking those few is less work."""
        version = self.version
        if scope is None:
            return False
        known = self._held.get(scope)
        if known is not None and known[0] == version:
            return True
        self._keep(scope, version, None)
        return False

    def _keep(self, scope: object, version: object, found: list[Any] | None) -> None:
        for stale in [name for name, known in self._held.items() if known[0] != version]:
            self._forget(stale)
        self._held[scope] = (version, found)
        while len(self._held) > _KEPT:
            self._forget(next(iter(self._held)))

    def _forget(self, scope: object) -> None:
        _, found = self._held.pop(scope)
        if found is not None:
            self._freeing.add(found)


class Rosters:
    """All of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._topology = broker.topology
        self.freeing = freeing = Freeing(broker.run_task)
        self._queues: WeakKeyDictionary[Any, Roster] = WeakKeyDictionary()
        self._exchanges: WeakKeyDictionary[Any, Roster] = WeakKeyDictionary()
        self._bindings: WeakKeyDictionary[Any, BindingRoster] = WeakKeyDictionary()
        self.of_things = Kept({}, lambda: self.version, freeing)
        clients = broker.clients
        self.of_clients = Kept(clients.kept, lambda: (clients.version, self.version), freeing)
        self.whole_lists = asyncio.Semaphore(WHOLE_LISTS_AT_ONCE)

    @property
    def version(self) -> object:
        """Changes with every declaration and deletion."""
        return self._topology.version

    async def forget(self, vhost: VHost, pace: Pace) -> None:
        """The vhost is deleted: frees its lists."""
        for rosters in (self._queues, self._exchanges):
            roster = rosters.pop(vhost, None)
            if roster is not None:
                things, roster.things = roster.things, []
                self.freeing.add(things)
        bindings = self._bindings.pop(vhost, None)
        if bindings is not None:
            await bindings.end(pace)

    async def queues(self, vhosts: Iterable[Any], pace: Pace) -> list[Any]:
        """Queues by vhost and name. The list is not to be changed."""
        return await self._joined(vhosts, self._queues, attrgetter("queues"), pace)

    async def exchanges(self, vhosts: Iterable[Any], pace: Pace) -> list[Any]:
        """Exchanges by vhost and name, as pairs of vhost and exchange. The list is not to be
        changed."""
        those = sorted(vhosts, key=_name)

        async def joined() -> list[Any]:
            found: list[Any] = long_list()
            for vhost in those:
                things = await self._of(vhost, self._exchanges, vhost.exchanges, pace)
                for part in _parts(things):
                    found += [(vhost, exchange) for exchange in part]
                    await pace()
            return found

        count = sum([len(vhost.exchanges) for vhost in those])
        return await self.of_things.kept(("exchanges", count, *map(_name, those)), joined)

    async def bindings(
        self, vhosts: Iterable[Any], pace: Pace, source: str | None = None
    ) -> list[Bound]:
        """Bindings by vhost, source, destination and key; `source`: of that exchange only."""
        found: list[Bound] = long_list()
        for vhost in sorted(vhosts, key=_name):
            version = self.version
            queues = await self._of(vhost, self._queues, vhost.queues, pace)
            if source is None:
                exchanges = await self._of(vhost, self._exchanges, vhost.exchanges, pace)
            else:
                one = vhost.exchanges.get(full_name(vhost.exchanges, source))
                exchanges = [] if one is None else [one]
            roster = self._bindings.get(vhost)
            if roster is None:
                roster = self._bindings[vhost] = BindingRoster(self.freeing)
            await move(await roster.bring_up(vhost, queues, exchanges, version, pace), found, pace)
        return found

    async def _joined(
        self,
        vhosts: Iterable[Any],
        kept: WeakKeyDictionary[Any, Roster],
        of: Callable[[Any], dict[str, Any]],
        pace: Pace,
    ) -> list[Any]:
        those = sorted(vhosts, key=_name)
        if len(those) == 1:
            return await self._of(those[0], kept, of(those[0]), pace)

        async def joined() -> list[Any]:
            found: list[Any] = long_list()
            for vhost in those:
                await extend(found, await self._of(vhost, kept, of(vhost), pace), pace)
            return found

        count = sum([len(of(vhost)) for vhost in those])
        return await self.of_things.kept(("joined", count, *map(_name, those)), joined)

    async def _of(
        self,
        vhost: VHost,
        kept: WeakKeyDictionary[Any, Roster],
        present: dict[str, Any],
        pace: Pace,
    ) -> list[Any]:
        roster = kept.get(vhost)
        if roster is None:
            roster = kept[vhost] = Roster(self.freeing)
        return await roster.bring_up(present, self.version, pace)


async def _followed(known: list[Bound], present: list[Any], vhost: str, pace: Pace) -> list[Bound]:
    """The list of what is bound now, from the list of what was bound before. Bindings are
    compared as objects: those of the list before are still there."""
    there, held = Reached(), Reached()
    for part in _parts(present):
        for binding in part:
            there.add(binding)
        await pace()
    kept: list[Bound] = long_list()
    for part in _parts(known):
        for bound in part:
            if bound.binding in there:
                held.add(bound.binding)
                kept.append(bound)
        await pace()
    added: list[Bound] = long_list()
    if len(kept) != len(present):
        for part in _parts(present):
            added += [Bound(vhost, binding) for binding in part if binding not in held]
            await pace()
    await let_go(there, pace)
    await let_go(held, pace)
    if len(added) > _FEW:
        await move(added, kept, pace)
        return await in_order(kept, _ends, pace)
    for bound in added:
        insort(kept, bound, key=_ends)
    return kept


_rosters: WeakKeyDictionary[Any, Rosters] = WeakKeyDictionary()


def rosters_of(broker: Broker) -> Rosters:
    """The lists of a broker."""
    found = _rosters.get(broker)
    if found is None:
        found = _rosters[broker] = Rosters(broker)
    return found


async def extend(found: list[Any], more: list[Any], pace: Pace) -> None:
    """Adds `more` to the end of `found`, in short steps."""
    for part in _parts(more):
        found += part
        await pace()


async def move(things: list[Any], to: list[Any], pace: Pace) -> None:
    """Takes the things to the end of another list, in short steps, and leaves none."""
    things.reverse()
    while things:
        part = things[-_STEP:]
        del things[-_STEP:]
        part.reverse()
        to += part
        await pace()


async def let_go(things: Reached, pace: Pace) -> None:
    """Refers no more to the things, in short steps."""
    while things.let_some_go(_STEP):
        await pace()


async def column(things: list[Any], read: Callable[[Any], Any], pace: Pace) -> list[Any]:
    """What `read` says of each thing, in short steps."""
    found: list[Any] = long_list()
    for part in _parts(things):
        found += map(read, part)
        await pace()
    return found


async def last_first(things: list[Any], count: int, pace: Pace) -> list[Any]:
    """The last `count` things, from the end on, in short steps."""
    found: list[Any] = long_list()
    for stop in range(len(things), len(things) - count, -_STEP):
        found += things[max(len(things) - count, stop - _STEP) : stop][::-1]
        await pace()
    return found


async def those_at(things: list[Any], places: Sequence[int], pace: Pace) -> list[Any]:
    """The things at these places, in short steps."""
    found: list[Any] = long_list()
    for part in _parts(places):
        found += [things[place] for place in part]
        await pace()
    return found


async def in_order(
    things: Sequence[Any], key: Callable[[Any], Any], pace: Pace, reverse: bool = False
) -> list[Any]:
    """The things sorted by a key, in short steps: chunks one by one, then merged. Equals stay in
    their order, also with `reverse`."""
    is_before = ge if reverse else le
    runs, ends = [], []
    for part in _parts(things, _CHUNK):
        run = sorted(part, key=key, reverse=reverse)
        ends.append((key(run[0]), key(run[-1])))
        runs.append(Through(run))
        await pace()
    merged: list[Any] = long_list()
    if all(is_before(last, first) for (_, last), (first, _) in pairwise(ends)):
        for each in runs:
            merged += each
            await pace()
        return merged
    for place, thing in enumerate(heapq.merge(*runs, key=key, reverse=reverse)):
        merged.append(thing)
        if place % _STEP == 0:
            await pace()
    return merged


def _parts(things: Sequence[Any], size: int = _STEP) -> Iterator[Sequence[Any]]:
    """The things in pieces."""
    for start in range(0, len(things), size):
        yield things[start : start + size]


def _ends(bound: Bound) -> tuple[str, str, str]:
    binding = bound.binding
    return binding.destination_type, binding.destination, binding.routing_key

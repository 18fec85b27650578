"""The bindings of a headers exchange, filed by the headers they want.

Bindings with the same arguments form a group: a message fits all of them or none. A message meets
only the groups that stand under one of its own headers. An `any` group stands under each header it
wants and fits wherever it is met. An `all` group of one header stands under that one and fits
likewise; one of several headers stands under the one where the fewest comparisons are due, and is
compared with the message.

What one message can cost is known before it comes: for each header name, the comparisons at the
dearest of its values, because a message has one value for a name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from broker.kernel.largest import Largest
from broker.kernel.wide_dict import WideDict
from broker.routing.binding import Binding

Place = tuple[str, Any]
"""A header name, and what is wanted of it: `PRESENT`, or `(value is a boolean, value)`, because a
boolean is no number here."""

WIDE = 1024
"""From this number on, the values of one header are kept in a `WideDict`."""

FEW = 64
"""Up to this number of values all are compared when the dearest one is removed; of more, the costs
are kept in order."""

PRESENT = None
"""The header has to be there, or its value cannot be looked up (a list or a table)."""


class _Group:
    """Bindings with the same arguments, and where they stand."""

    __slots__ = ("bindings", "comparisons", "is_any", "places", "wanted")

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.wanted, self.is_any = wanted_of(arguments)
        self.bindings: dict[Binding, Binding] = {}
        self.places: list[Place] = []
        self.comparisons = 0
        """Values that are compared at most to know whether a message that meets it fits; 0 if it
        always does."""

    def fits(self, headers: Mapping[str, Any]) -> bool:
        for name, value in self.wanted.items():
            found = name in headers and (value is None or _same(value, headers[name]))
            if found == self.is_any:
                return found
        return not self.is_any


class _Bucket:
    """The groups of one place, and the comparisons that they cost together."""

    __slots__ = ("comparisons", "groups")

    def __init__(self) -> None:
        self.groups: dict[_Group, None] = {}
        self.comparisons = 0


class _Header:
    """The places of one header name."""

    __slots__ = ("buckets", "costs", "most", "only")

    def __init__(self) -> None:
        self.buckets: dict[Any, _Bucket] | WideDict[Any, _Bucket] = {}
        self.only: tuple[Any, _Bucket] | None = None
        """The one that there is, if there is one."""
        self.costs: Largest | None = None
        """The comparisons of each value, once there are more than `FEW`."""
        self.most = 0
        """Comparisons at the dearest value."""

    def make_place(self, value: Any) -> _Bucket:
        """A bucket for a value that has none."""
        bucket = self.buckets[value] = _Bucket()
        self._note_only()
        if len(self.buckets) == WIDE and isinstance(self.buckets, dict):
            self.buckets = WideDict(self.buckets)
        if len(self.buckets) > FEW and self.costs is None:
            self.costs = Largest()
            for comparisons in self._all_comparisons():
                self.costs.add(comparisons)
        return bucket

    def drop_place(self, value: Any) -> None:
        """No group stands there any more."""
        del self.buckets[value]
        self._note_only()

    def _note_only(self) -> None:
        self.only = next(iter(self.buckets.items())) if len(self.buckets) == 1 else None

    def change(self, before: int, now: int) -> None:
        """The comparisons of a value, which is not `PRESENT`, were `before` and are `now`."""
        if self.costs is not None:
            self.costs.remove(before)
            self.costs.add(now)
            self.most = self.costs.most
        elif now >= self.most:
            self.most = now
        elif before == self.most:
            self.most = max(self._all_comparisons(), default=0)

    def _all_comparisons(self) -> Iterator[int]:
        return (one.comparisons for at, one in self.buckets.items() if at is not PRESENT)


class HeaderIndex:
    """Where the bindings of one exchange stand."""

    def __init__(self) -> None:
        self._groups: WideDict[str, _Group] = WideDict()
        self._always: dict[_Group, None] = {}
        """`all` groups that want no header."""
        self._headers: WideDict[str, _Header] = WideDict()
        self.cost = 0
        """Values that the dearest message can make the exchange compare."""

    def cost_with(self, binding: Binding) -> int:
        """`cost` as it would be with one more binding."""
        cost = self.cost
        if binding.arguments_text in self._groups:
            return cost
        group = _Group(binding.arguments)
        self._place(group)
        for name, value in group.places if group.comparisons else ():
            header = self._headers.get(name)
            if value is PRESENT or header is None:
                cost += group.comparisons
            else:
                there = self._comparisons_at((name, value))
                cost += max(0, there + group.comparisons - header.most)
        return cost

    def add(self, binding: Binding) -> None:
        group = self._groups.get(binding.arguments_text)
        if group is None:
            group = self._groups[binding.arguments_text] = _Group(binding.arguments)
            self._file(group)
        group.bindings[binding] = binding

    def remove(self, binding: Binding) -> None:
        """Takes out a binding that was added."""
        group = self._groups[binding.arguments_text]
        del group.bindings[binding]
        if not group.bindings:
            del self._groups[binding.arguments_text]
            self._take_out(group)

    def match(self, headers: Mapping[str, Any]) -> Iterator[Binding]:
        """The bindings that a message with these headers fits, each once."""
        for group in self._always:
            yield from group.bindings.values()
        met: set[_Group] = set()
        for bucket in self._buckets(headers):
            for group in bucket.groups:
                if group in met or (group.comparisons and not group.fits(headers)):
                    continue
                if len(group.places) > 1:
                    met.add(group)
                yield from group.bindings.values()

    def _buckets(self, headers: Mapping[str, Any]) -> Iterator[_Bucket]:
        """What stands under the headers of a message, which may have thousands: each takes a tenth
        of a microsecond where its header has one place."""
        find = self._headers.get
        for name in headers if len(headers) <= len(self._headers) else self._headers:
            header = find(name)
            if header is None or name not in headers:
                continue
            value = headers[name]
            if header.only is not None:
                place, bucket = header.only
                if place is PRESENT or (place[1] == value and place[0] is isinstance(value, bool)):
                    yield bucket
                continue
            for place in {PRESENT, _wanted_at(value)}:
                found = header.buckets.get(place)
                if found is not None:
                    yield found

    def _place(self, group: _Group) -> None:
        """Says where a group would stand now, and what it costs there."""
        places = [(name, _wanted_at(value)) for name, value in group.wanted.items()]
        if not group.is_any and len(places) > 1:
            places = [min(places, key=self._comparisons_at)]
            is_compared = True
        else:
            is_compared = any(
                value is PRESENT and group.wanted[name] is not None for name, value in places
            )
        group.places = places
        group.comparisons = sum(map(_size, group.wanted.values())) if is_compared else 0

    def _comparisons_at(self, place: Place) -> int:
        header = self._headers.get(place[0])
        bucket = header.buckets.get(place[1]) if header is not None else None
        return bucket.comparisons if bucket is not None else 0

    def _file(self, group: _Group) -> None:
        self._place(group)
        if not group.wanted and not group.is_any:
            self._always[group] = None
        for name, value in group.places:
            header = self._headers.get(name)
            if header is None:
                header = self._headers[name] = _Header()
            bucket = header.buckets.get(value)
            if bucket is None:
                bucket = header.make_place(value)
            bucket.groups[group] = None
            self._change(header, value, bucket, group.comparisons)

    def _take_out(self, group: _Group) -> None:
        self._always.pop(group, None)
        for name, value in group.places:
            header = self._headers[name]
            bucket = header.buckets[value]
            self._change(header, value, bucket, -group.comparisons)
            del bucket.groups[group]
            if not bucket.groups:
                header.drop_place(value)
            if not header.buckets:
                del self._headers[name]

    def _change(self, header: _Header, value: Any, bucket: _Bucket, more: int) -> None:
        """Adds `more` comparisons to the cost of one of a header's values."""
        if more == 0:
            return
        before, most = bucket.comparisons, header.most
        bucket.comparisons += more
        if value is PRESENT:
            self.cost += more
        else:
            header.change(before, bucket.comparisons)
            self.cost += header.most - most


def wanted_of(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """The headers that a binding wants, and whether one of them is enough."""
    match = arguments.get("x-match", "all")
    with_x = match.endswith("-with-x")
    wanted = {
        name: value
        for name, value in arguments.items()
        if name != "x-match" and (with_x or not name.startswith("x-"))
    }
    return wanted, match.startswith("any")


def _same(one: Any, other: Any) -> bool:
    """Equality of field values: numbers by value, but a boolean is no number."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _wanted_at(value: Any) -> Any:
    if value is None or isinstance(value, list | dict):
        return PRESENT
    return isinstance(value, bool), value


def _size(value: Any) -> int:
    """The values in a value: 1, and more for lists and tables."""
    if isinstance(value, list):
        return 1 + sum(map(_size, value))
    if isinstance(value, dict):
        return 1 + sum(map(_size, value.values()))
    return 1

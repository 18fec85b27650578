"""Every object that this appliance made or began to make, in `tiers.journal`: which of them are to
be deleted, and when.

An object is entered before it is made. At a start, one that is in no list of a stream, and of which
no index has a stub, was left by a process that ended in between, or belongs to what was deleted: it
is deleted after the time of grace. No object that is not in here is ever deleted, and none of a
stream whose list cannot be read whole.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator
from typing import Any

import msgspec

from broker.store.directory.threaded_journal import Done, ThreadedJournal

NAME = "tiers.journal"

AHEAD = 16 << 10
"""Space behind the file, as `ThreadedJournal` has it."""

MADE, CONDEMNED, ENDED, GONE, OWNED = 1, 2, 3, 4, 5


class Row(msgspec.Struct, frozen=True, array_like=True):
    """An entry of the file. `what` is an object's name; a group of objects for ENDED; the address
    of a store for OWNED. `due`: ms since 1970."""

    kind: int
    what: str
    due: int = 0


def group_of(name: str) -> str:
    """What an object belongs to: a stream (its incarnation, in hexadecimal), or an index."""
    return name.split("/")[-2]


def group_of_stream(incarnation: int) -> str:
    """The group of a stream's objects."""
    return f"{incarnation:016x}"


class Register:
    """The objects of an appliance whose data directory is `directory`."""

    def __init__(self, persister: Any, directory: str) -> None:
        self._journal = ThreadedJournal(persister, f"{directory}/{NAME}", self._is_living, AHEAD)
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Row)
        self._heap: list[tuple[int, str]] = []
        self.objects: dict[str, dict[str, int]] = {}
        """Group -> names of its objects -> when each is to be deleted, 0: not."""
        self.ended: dict[str, int] = {}
        """Groups of which all objects are to be deleted, and when."""
        self.owned = ""
        """The store whose prefix this appliance took."""

    # -- start -------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Reads the file. Raises OSError, and ValueError if it is no journal."""
        for payload in self._journal.recover():
            try:
                row = self._decoder.decode(payload)
                self._replay(row)
            except (msgspec.MsgspecError, ValueError, IndexError):
                continue
        for group in [each for each in self.objects if not self.objects[each]]:
            del self.objects[group]
        self.ended = {each: due for each, due in self.ended.items() if each in self.objects}

    def _replay(self, row: Row) -> None:
        if row.kind == OWNED:
            self.owned = row.what
        elif row.kind == ENDED:
            self.ended[row.what] = row.due
        else:
            names = self.objects.setdefault(group_of(row.what), {})
            if row.kind == GONE:
                names.pop(row.what, None)
            else:
                names[row.what] = row.due if row.kind == CONDEMNED else 0

    def rows(self) -> Iterator[Row]:
        """What matters now."""
        if self.owned:
            yield Row(OWNED, self.owned)
        for names in self.objects.values():
            for name, due in names.items():
                yield Row(CONDEMNED if due else MADE, name, due)
        for group, due in self.ended.items():
            yield Row(ENDED, group, due)

    def settle(
        self, listed: dict[str, set[str]], unsure: set[str], later: set[str], due: int
    ) -> None:
        """Compares the objects with the lists, at a start. `listed`: the names that are in use, by
        group; of the groups in `unsure` that is not known, and nothing is deleted; those in `later`
        tell it themselves (`keep`). Raises OSError."""
        before = list(self.rows())
        for group, names in self.objects.items():
            if group in unsure:
                self.ended.pop(group, None)
                for name in names:
                    names[name] = 0
            elif group in later:
                self.ended.pop(group, None)
            elif group not in listed:
                self.ended.setdefault(group, due)
            else:
                self.ended.pop(group, None)
                there = listed[group]
                for name in names:
                    names[name] = 0 if name in there else names[name] or due
        if list(self.rows()) != before or self._journal.is_cut:
            self._journal.rewrite(self._encoder.encode(row) for row in self.rows())
        for names in self.objects.values():
            self._heap += [(due, name) for name, due in names.items() if due]
        for group, due in self.ended.items():
            self._heap += [(due, name) for name in self.objects[group]]
        heapq.heapify(self._heap)

    # -- changes -----------------------------------------------------------------------------------

    def _append(self, row: Row, done: Done = lambda _: None) -> None:
        self._journal.append(self._encoder.encode(row), done)

    def intend(self, name: str, done: Done) -> None:
        """An object is about to be made; `done` follows when that is synced."""
        self.objects.setdefault(group_of(name), {})[name] = 0
        self._append(Row(MADE, name), done)

    def condemn(self, name: str, due: int) -> None:
        """An object is of no use any more. Its list does not name it, and that is synced."""
        names = self.objects.get(group_of(name), {})
        if name in names and not names[name]:
            names[name] = due
            heapq.heappush(self._heap, (due, name))
            self._append(Row(CONDEMNED, name, due))

    def keep(self, group: str, used: Collection[str], due: int) -> None:
        """Of a group's objects, only these are in use."""
        names = self.objects.get(group, {})
        for name in list(names):
            if name not in used:
                self.condemn(name, due)
            elif names[name]:
                names[name] = 0
                self._append(Row(MADE, name))

    def end(self, group: str, due: int) -> None:
        """A stream or an index was deleted: none of its objects is in use any more."""
        names = self.objects.get(group)
        if names and group not in self.ended:
            self.ended[group] = due
            for name in names:
                heapq.heappush(self._heap, (due, name))
            self._append(Row(ENDED, group, due))

    def gone(self, name: str) -> None:
        """An object was deleted."""
        group = group_of(name)
        names = self.objects.get(group, {})
        if names.pop(name, None) is not None:
            self._append(Row(GONE, name))
        if not names:
            self.objects.pop(group, None)
            self.ended.pop(group, None)

    def own(self, store: str) -> None:
        """The prefix of this store is this appliance's."""
        if store != self.owned:
            self.owned = store
            self._append(Row(OWNED, store))

    # -- what is due -------------------------------------------------------------------------------

    def take_due(self, now: int) -> str | None:
        """An object that is to be deleted now; `put_back` if that failed."""
        while self._heap and self._heap[0][0] <= now:
            due, name = heapq.heappop(self._heap)
            group = group_of(name)
            if due in (self.objects.get(group, {}).get(name), self.ended.get(group)):
                return name
        return None

    def put_back(self, name: str) -> None:
        """It is still there."""
        group = group_of(name)
        due = self.objects.get(group, {}).get(name) or self.ended.get(group)
        if due:
            heapq.heappush(self._heap, (due, name))

    @property
    def condemned(self) -> int:
        """How many objects are to be deleted."""
        return len(self._heap)

    @property
    def count(self) -> int:
        """How many objects there are, those to be deleted among them."""
        return sum(map(len, self.objects.values()))

    def prepare(self) -> None:
        """Sees to it that objects can be entered on a full disk, too; to be called often."""
        self._journal.prepare()

    def compact(self) -> None:
        """Lets the file be rewritten where most of it is outdated."""
        self._journal.compact(self.count + len(self.ended) + 1)

    def _is_living(self, payload: bytes) -> bool:
        try:
            row = self._decoder.decode(payload)
            if row.kind == OWNED:
                return row.what == self.owned
            if row.kind == ENDED:
                return self.ended.get(row.what) == row.due
            if row.kind == GONE or "/" not in row.what:
                return False
            there = self.objects.get(group_of(row.what), {}).get(row.what)
        except (msgspec.MsgspecError, ValueError, IndexError):
            return False
        return there is not None and there == (row.due if row.kind == CONDEMNED else 0)

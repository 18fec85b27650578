# cython: language_level=3
"""Where each body that is written lies, and how many records refer to it: the location index, in
memory or asked in a thread."""

import struct

cimport cython
from libc.stdint cimport uint8_t, uint32_t

from broker.store.bodies.blocks cimport Body
from broker.store.commit.persister cimport Persister
from broker.store.index import location_index
from broker.store.index.location cimport Location
from broker.store.index.ram_index cimport RamIndex

cdef enum:
    CHANGES_MAX = 512            # changes for an index in a thread before they are handed over

ENTRY = struct.Struct("<IIII")


def are_living(index, entries, number):
    living = []
    for id, offset, _ in entries:
        found = index.get(id)
        living.append(
            found is not None and ENTRY.unpack(found)[:2] == (number, offset))
    return living


@cython.final
cdef class BodyIndex:
    """The index of one store. Changes for an index in a thread gather until `hand_over`."""

    def __init__(self, Persister persister):
        self.persister = persister
        self.changes = []

    def begin(self, index, bint clean):
        """`clean`: the index has the references of the last run. Otherwise they are counted."""
        self.index = index
        self.ram = index if isinstance(index, RamIndex) else None
        self.counter = None if clean else index.counter

    def counted(self):
        """Every queue has told its references."""
        self.counter = None

    cdef bint is_asked(self) noexcept:
        """Whether answers come from a thread."""
        return self.ram is None

    cdef bint is_full(self) noexcept:
        """Whether enough changes wait to be handed over."""
        return len(self.changes) >= CHANGES_MAX

    cdef bint count_recovered(self, const uint8_t* id) except? True:
        """Counts the reference of a record that recovery found; whether there is such a body.
        Raises OSError if that cannot be determined."""
        return self.counter.count_reference(id)

    cdef int add(self, Body* body, uint32_t length) except -1:
        """The record of a body is written, with this length."""
        cdef Location* entry
        if self.ram is None:
            self.changes.append(
                (body.id[:16], ENTRY.pack(body.file, body.offset, length, body.references)))
            return 0
        entry = self.ram.put(body.id)
        entry.file = body.file
        entry.offset = body.offset
        entry.length = length
        entry.references = body.references
        return 0

    cdef uint32_t take(self, const uint8_t* id) except? 0:
        """One more record refers to a body. Returns the number of its file: 0 if there is no such
        body, or if only the thread knows."""
        cdef Location* found
        if self.ram is None:
            self.changes.append((id[:16], 1))
            return 0
        found = self.ram.find(id)
        if found == NULL:
            return 0
        found.references += 1
        return found.file

    cdef bint drop(self, const uint8_t* id, Location* gone) except? True:
        """One record less refers to a body. Returns whether it was the last one, as far as is known
        now; `gone` is where the body lay."""
        cdef Location* found
        if self.ram is None:
            self.changes.append((id[:16], -1))
            return False
        found = self.ram.find(id)
        if found == NULL:
            return False
        found.references -= 1
        if found.references:
            return False
        gone[0] = found[0]
        self.ram.remove(id)
        return True

    cdef Location* find(self, const uint8_t* id) noexcept:
        """Of an index in memory: where a body lies, or NULL."""
        return self.ram.find(id)

    # -- an index in a thread ----------------------------------------------------------------------

    def ask(self, bytes id, then):
        """Calls `then(entry or None, error)` with what the index has."""
        index = self.index
        self.persister.indexing.submit(lambda: index.get(id), then)

    def hand_over(self, then):
        """Gives the changes to the index. Calls `then` with (file, length) of each record that has
        no reference any more, or with the error."""
        if not self.changes or self.ram is not None:
            return
        changes, self.changes = self.changes, []
        index = self.index
        self.persister.indexing.submit(lambda: location_index.carry_out(index, changes), then)

    def living_of(self, entries, uint32_t number) -> list:
        """Which of a file's (id, offset, length) the index still points to. For a thread."""
        if self.ram is not None:
            return are_living(self.ram, entries, number)
        index = self.index
        return self.persister.indexing.ask(lambda: are_living(index, entries, number))

    def move(self, bytes moves, uint32_t number, lost, then):
        """The file with this number has the records of `moves`; the `lost` ones are nowhere. Calls
        `then(size of the moved records, error)`. Changes are handed over before."""
        def point_to_it(index):
            location_index.forget(index, lost)
            return location_index.move(index, moves, number)

        if self.ram is not None:
            location_index.forget(self.ram, lost)
            then(self.ram.move(moves, number), None)
            return
        index = self.index
        self.persister.indexing.submit(lambda: point_to_it(index), then)

    # -- end ---------------------------------------------------------------------------------------

    def hurry(self):
        """The process or the vhost ends: long work of the index gives way."""
        if self.index is not None:
            self.index.hurry()

    def finish(self):
        """Carries out the last changes. Returns what `hand_over` tells."""
        freed = location_index.carry_out(self.index, self.changes)
        self.changes = []
        return freed

    def drop_all(self):
        """The vhost is deleted: the index is closed, and nothing of it is needed."""
        self.changes = []
        if self.index is not None:
            index = self.index
            index.hurry()
            self.persister.indexing.submit(lambda: index.close(False), lambda _, __: None)

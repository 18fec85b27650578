# cython: language_level=3
"""Where the consumers of a stream continue: by consumer tag, the offset of its last acknowledged
message.

Changes are collected until the next round and are appended to `offsets.N`, entries as in a journal:
offset (u64, big-endian; all ones if the tag was removed) and tag. The file is synced as acks files
are, within 200 ms. When most of it is outdated, and at the first change after a start,
`offsets.N+1` begins with all offsets, and the older file is removed once that is synced.
"""

import os

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy, strdup

from broker.store.commit.persister cimport Persister
from broker.store.directory.journal import MAGIC, encode, sound_entries
from broker.store.files import disk
from broker.store.files.disk cimport file_free, file_new
from broker.store.files.operation cimport File, OP_UNLINK, OP_WRITE, Op
from broker.store.files.io_thread cimport Round, STAGE_REMOVE, STAGE_WRITE, round_add, round_new
from broker.store.log.segments cimport QueueDirectory

cdef enum:
    ENTRY_BYTES = 16             # of an entry beside its tag
    COMPACT_FROM = 64 << 10      # a file smaller than this is never rewritten
    WASTE_MAX = 4                # rewritten when it is this many times what is live
    LOOKS_MAX = 64               # at places of consumers that are there, for one that is not

# In place of an offset: the tag has no place any more.
FORGOTTEN = b"\xff" * 8


cdef class TrackedOffset:
    """One consumer tag's place in the stream."""


cdef class ConsumerOffsets:
    """The offsets of a stream's consumers, at most `most`: beyond that, the one that was not stored
    for longest, of those without a consumer, is removed, and `forgot(tag)` called. Offsets of
    connected consumers are always kept."""

    def __init__(self, str directory, uint32_t most):
        self.directory = directory
        self.most = most
        self.tracked = {}
        self.changed = []
        self.gone = []
        self.stale = []
        self.retired = []
        self.file = NULL

    def __dealloc__(self):
        cdef size_t address
        file_free(self.file)
        if self.retired is not None:
            for address in self.retired:
                file_free(<File*> address)

    cdef TrackedOffset track(self, bytes tag):
        """The place of a tag, new if it has none."""
        cdef TrackedOffset tracked = self.tracked.get(tag)
        if tracked is None:
            tracked = TrackedOffset()
            tracked.tag = tag
        return tracked

    cdef int store(self, TrackedOffset tracked, uint64_t offset) except -1:
        """The consumer is done with `offset`; written with the next round."""
        tracked.offset = offset
        if tracked.changed:
            return 0
        tracked.changed = tracked.known = True
        self.changed.append(tracked)
        if self.tracked.pop(tracked.tag, None) is None:
            self.live += ENTRY_BYTES + len(tracked.tag)
        self.tracked[tracked.tag] = tracked
        if len(self.tracked) > self.most:
            self.make_room()
        return 0

    cdef int make_room(self) except -1:
        """Removes the oldest offsets without a consumer. Those that do have one become the newest,
        here and in the file, so that the next start would remove the same."""
        cdef TrackedOffset oldest
        cdef uint32_t looks = 0
        while len(self.tracked) > self.most and looks < LOOKS_MAX:
            looks += 1
            oldest = self.tracked.pop(next(iter(self.tracked)))
            if oldest.readers:
                self.tracked[oldest.tag] = oldest
                if not oldest.changed:
                    oldest.changed = True
                    self.changed.append(oldest)
                continue
            oldest.known = False
            self.live -= ENTRY_BYTES + len(oldest.tag)
            self.gone.append(oldest.tag)
            self.forgotten += 1
            if self.forgot is not None:
                self.forgot(oldest.tag.decode("utf-8", "surrogateescape"))
        return 0

    def stored(self) -> dict:
        """Tag -> offset of the last message it is done with, the one stored last at the end."""
        cdef TrackedOffset tracked
        return {tracked.tag.decode("utf-8", "surrogateescape"): tracked.offset
                for tracked in self.tracked.values()}

    # -- the file ----------------------------------------------------------------------------------

    cdef int freeze(self, Round* round, Persister persister, QueueDirectory folder) except -1:
        """Adds what changed to a round."""
        cdef TrackedOffset tracked
        cdef Op* op
        cdef bint anew = self.file == NULL or (
            self.length > COMPACT_FROM and self.length > WASTE_MAX * self.live)
        if not self.changed:
            return 0
        rows = self.tracked.values() if anew else self.changed
        data = b"".join([encode(tracked.offset.to_bytes(8, "big") + tracked.tag)
                         for tracked in rows if tracked.known])
        if not anew:
            # In front: a tag that was forgotten may have a place again.
            data = b"".join([encode(FORGOTTEN + tag) for tag in self.gone]) + data
        for tracked in self.changed:
            tracked.changed = False
        self.changed = []
        self.gone = []
        if anew:
            data = MAGIC + data
            if self.file != NULL:
                self.stale.append(f"offsets.{self.number:010d}")
                self.retired.append(<size_t> self.file)
            self.number += 1
            self.length = 0
            self.file = file_new(f"{self.directory}/offsets.{self.number:010d}")
            folder.ensure(round)
            persister.note_directory(self.directory)
        persister.files.use(round, self.file)
        op = round_add(round, STAGE_WRITE, OP_WRITE, self.file)
        op.length = len(data)
        op.data = <uint8_t*> malloc(op.length)
        if op.data == NULL:
            raise MemoryError("no memory for consumer offsets")
        op.owns_data = True
        memcpy(op.data, <char*> data, op.length)
        op.offset = self.length
        self.length += op.length
        persister.note_written(self.file, not self.stale)
        return 0

    cdef int written(self, Round* round, Persister persister) except -1:
        """A round is over: files that a synced one replaces go."""
        if round.sync and self.stale and self.file != NULL and not self.file.dirty:
            for name in self.stale:
                self.unlink(persister, name)
            self.stale = []
        self.free_retired()
        return 0

    cdef int free_retired(self) except -1:
        cdef size_t address
        cdef list kept = []
        for address in self.retired:
            if (<File*> address).busy:
                kept.append(address)
                continue
            file_free(<File*> address)
        self.retired = kept
        return 0

    cdef int unlink(self, Persister persister, str name) except -1:
        cdef Round* round = round_new()
        cdef Op* op = round_add(round, STAGE_REMOVE, OP_UNLINK, NULL)
        encoded = os.fsencode(f"{self.directory}/{name}")
        op.path = strdup(<char*> encoded)
        persister.background.remove(round)
        return 0

    def recover(self, numbers, uint64_t next_offset, list problems) -> None:
        """Reads the files of the last run, oldest first; adds sentences about what was wrong to
        `problems`. A consumer can be done with no more than there is."""
        cdef TrackedOffset tracked
        for number in numbers:
            name = f"offsets.{number:010d}"
            self.number = number
            try:
                payloads, unsound = sound_entries(disk.read(f"{self.directory}/{name}"))
            except OSError as error:
                problems.append(f"{self.directory}/{name} cannot be read: {error.strerror}; places "
                                "of consumers in it are forgotten")
                continue
            if unsound:
                problems.append(f"{self.directory}/{name}: {unsound} bytes are no places of "
                                "consumers; the places around them are kept")
            self.stale.append(name)
            for payload in payloads:
                if next_offset == 0 or len(payload) < 8:
                    continue
                if payload.startswith(FORGOTTEN):
                    if self.tracked.pop(payload[8:], None) is not None:
                        self.live -= ENTRY_BYTES + len(payload) - 8
                    continue
                tracked = self.track(payload[8:])
                self.store(tracked, min(int.from_bytes(payload[:8], "big"), next_offset - 1))
                tracked.changed = False
        # The first change begins a new file, without those.
        self.changed = []
        self.gone = []

    cdef bint is_busy(self) noexcept:
        """Whether a round in flight uses a file."""
        cdef size_t address
        if self.file != NULL and self.file.busy:
            return True
        for address in self.retired:
            if (<File*> address).busy:
                return True
        return False

    cdef int delete(self, Persister persister) except -1:
        """The stream is deleted; no operation may be in flight."""
        if self.file != NULL:
            self.stale.append(f"offsets.{self.number:010d}")
            self.retired.append(<size_t> self.file)
            self.file = NULL
        self.free_retired()
        for name in self.stale:
            self.unlink(persister, name)
        self.stale = []
        self.tracked = {}
        self.changed = []
        self.gone = []
        return 0

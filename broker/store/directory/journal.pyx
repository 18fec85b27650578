# cython: language_level=3
"""An append-only journal of small entries: the definitions of a vhost.

Entry: u32 length of the payload, u32 CRC-32C of length and payload (little-endian), payload.
A tail without a sound entry was never confirmed and is cut. If sound entries follow an entry that
fails its checksum, that entry is damaged: the file is kept in quarantine, the sound entries are
used.
Rewriting (compaction) is a new file put in place by rename.
"""

import os
import struct

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy

from broker.kernel.checksum cimport crc32c_of
from broker.kernel.checksum import crc32c
from broker.store.commit.contracts cimport Dirty
from broker.store.commit.persister cimport Persister
from broker.store.files import disk
from broker.store.files.disk cimport file_close, file_free, file_new
from broker.store.files.operation cimport (
    File, Op, OP_CLOSE, OP_OPEN, OP_SYNC, OP_WRITE,
)
from broker.store.files.io_thread cimport Round, STAGE_JOURNAL, round_add
from broker.store.files.sound_search cimport SoundSearch

cdef enum:
    ENTRY_HEAD = 8               # length and check

MAGIC = b"LVRJ\x01\x00\x00\x00"
HEAD = struct.Struct("<II")


def encode(payload: bytes) -> bytes:
    """One entry as it stands in the file."""
    length = struct.pack("<I", len(payload))
    return HEAD.pack(len(payload), crc32c(length + payload)) + payload


def entries(data: bytes) -> tuple:
    """(payloads, bytes that are sound) of a journal's content. An empty or wrongly begun file has
    none."""
    if data[:len(MAGIC)] != MAGIC:
        return [], 0
    payloads = []
    at = len(MAGIC)
    while end := end_of(data, at):
        payloads.append(data[at + HEAD.size:end])
        at = end
    return payloads, at


def end_of(data: bytes, at: int) -> int:
    """Where the entry at a position ends; 0 if none that is sound stands there."""
    if at + HEAD.size > len(data):
        return 0
    length, check = HEAD.unpack_from(data, at)
    end = at + HEAD.size + length
    if end > len(data) or crc32c(data[at:at + 4] + data[at + HEAD.size:end]) != check:
        return 0
    return end


def sound_entries(data: bytes) -> tuple:
    """(payloads, bytes that are none) of all a journal's content: damaged parts are skipped. For
    journals whose entries do not depend on each other."""
    cdef EntrySearch search = EntrySearch(data)
    payloads = []
    unsound = 0
    at = len(MAGIC)
    if data[:at] != MAGIC:
        unsound = min(at, len(data))
    while at < len(data):
        following = search.next(at, len(data))
        unsound += following - at
        at = following
        if at < len(data):
            end = end_of(data, at)
            payloads.append(data[at + HEAD.size:end])
            at = end
    return payloads, unsound


cdef class EntrySearch(SoundSearch):
    """For entries of a journal."""

    cdef bint filled                 # only those that have a payload

    cdef int64_t claim(self, size_t at, uint32_t* seed) noexcept nogil:
        cdef const uint32_t* length = <const uint32_t*> (self.data + at)
        if self.length - at < ENTRY_HEAD or length[0] > self.length - at - ENTRY_HEAD:
            return -1
        if self.filled and not length[0]:
            return -1
        seed[0] = crc32c_of(0, self.data + at, 4)
        return length[0]


cdef class Journal(Dirty):
    """Appends go out with the persister's next round, before everything else, and are synced in
    it."""

    cdef Persister persister
    cdef readonly str path
    cdef readonly list recovered
    cdef readonly list problems
    # Something of it was cut or damaged: the file is left as it is until `rewrite`, which has to
    # come before anything is added.
    cdef readonly bint incomplete
    # The copy in quarantine, where there is one of this start.
    cdef readonly str kept
    cdef list pending
    cdef File* file
    cdef readonly uint64_t length
    cdef bint listed

    def __init__(self, Persister persister, str path):
        cdef EntrySearch search
        self.persister = persister
        self.path = path
        self.pending = []
        self.kept = ""
        data = disk.read(path) if disk.exists(path) else b""
        self.problems = []
        self.recovered, sound = entries(data)
        if sound != len(data) or not data:
            self.incomplete = len(data) > sound
            search = EntrySearch(data)
            search.filled = True
            following = search.next(max(sound, len(MAGIC)), search.length)
            if following == search.length and data[:len(MAGIC)] != MAGIC and len(data) > len(MAGIC):
                raise ValueError(
                    f"{path} is no journal of this version; move it away or restore a backup")
            if following < search.length:
                self.salvage(data, following, search)
            elif self.incomplete:
                # The tail was never confirmed.
                if sound:
                    self.problems.append(
                        f"{path}: cut {len(data) - sound} bytes behind the last sound definition")
            else:
                disk.write_atomic(path, MAGIC)
                sound = len(MAGIC)
        self.length = sound
        self.file = file_new(path)

    def __dealloc__(self):
        file_free(self.file)

    cdef int salvage(self, bytes data, size_t following, EntrySearch search) except -1:
        """Keeps a copy of the damaged file and continues with its sound entries."""
        kept = self.keep_copy()
        while following < search.length:
            end = end_of(data, following)
            self.recovered.append(data[following + HEAD.size:end])
            following = end
            # Right behind a sound entry one without a payload is sound, too.
            search.filled = False
            if search.next(end, following + 1) > following:
                search.filled = True
                following = search.next(end, search.length)
        self.problems.append(
            f"{self.path} was damaged: {len(self.recovered)} definitions were found in it, others "
            f"are lost; the damaged file is {kept}")

    def keep_copy(self) -> str:
        """Copies the file as it is to quarantine, unless it is there already, and returns the
        copy's path. No copy of an earlier time is replaced. Waits for the disk; for start, before
        anything is added."""
        if self.kept:
            return self.kept
        data = disk.read(self.path)
        directory = self.persister.quarantine.directory
        stem = f"{directory}/{os.path.basename(os.path.dirname(self.path))}-definitions"
        kept = f"{stem}.journal"
        number = 1
        while disk.exists(kept) and disk.read(kept) != data:
            number += 1
            kept = f"{stem}.{number}.journal"
        disk.makedirs(directory)
        disk.write_atomic(kept, data)
        self.kept = kept
        return kept

    def append(self, payload: bytes) -> None:
        """Adds an entry; `persister.after_round` calls back when it is on disk."""
        self.pending.append(encode(payload))
        if not self.listed:
            self.listed = True
            self.persister.add_journal(self)

    cdef int freeze(self, Round* round) except -1:
        cdef Op* op
        cdef bytes data = b"".join(self.pending)
        self.pending = []
        self.listed = False
        round_add(round, STAGE_JOURNAL, OP_OPEN, self.file)
        op = round_add(round, STAGE_JOURNAL, OP_WRITE, self.file)
        op.length = len(data)
        op.data = <uint8_t*> malloc(op.length + 1)
        if op.data == NULL:
            raise MemoryError("no memory for the journal")
        op.owns_data = True
        memcpy(op.data, <char*> data, op.length)
        op.offset = self.length
        self.length += op.length
        if not self.persister.no_sync:
            round_add(round, STAGE_JOURNAL, OP_SYNC, self.file)
        # There is one for each vhost, and the open files that the store may have are others.
        round_add(round, STAGE_JOURNAL, OP_CLOSE, self.file)
        return 0

    cdef int written(self, Round* round) except -1:
        return 0

    def rewrite(self, payloads) -> None:
        """Compaction: the journal holds just `payloads`. Waits for the disk; for start and for the
        thread that compacts."""
        data = MAGIC + b"".join(encode(each) for each in payloads)
        disk.write_atomic(self.path, data)
        file_close(self.file)
        self.length = len(data)

    def delete(self) -> None:
        """Removes the file; no entry may be pending in a round."""
        file_close(self.file)
        disk.unlink(self.path)

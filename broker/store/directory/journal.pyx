# cython: language_level=3
"""An append-only journal of small entries: the definitions of a vhost.

Entry: u32 length of the payload, u32 CRC-32C of length and payload (little-endian), payload.
A tail without a sound entry was never confirmed and is cut. If sound entries follow an entry that
fails its checksum, that entry is damaged: the file is kept in quarantine, the sound entries are
used.
Rewriting (compaction) is a new file put in place by rename: at the start in one step (`rewrite`),
later by a round, behind which entries go to the new file (`put_in_place`).
"""

import os
import struct

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy, strdup

from broker.kernel.checksum cimport crc32c_of
from broker.kernel.checksum import crc32c
from broker.store.commit.contracts cimport Dirty
from broker.store.commit.persister cimport Persister
from broker.store.files import disk
from broker.store.files.disk cimport file_close, file_free, file_new
from broker.store.files.operation cimport (
    File, Op, OP_CLOSE, OP_OPEN, OP_RENAME, OP_SYNC, OP_SYNC_DIRECTORY, OP_WRITE,
)
from broker.store.files.io_thread cimport Round, STAGE_JOURNAL, round_add
from broker.store.files.sound_search cimport SoundSearch

cdef enum:
    ENTRY_HEAD = 8               # length and check
    ENTRIES_A_STEP = 256

MAGIC = b"LVRJ\x01\x00\x00\x00"
HEAD = struct.Struct("<II")


def encode(payload: bytes) -> bytes:
    """One entry as it stands in the file."""
    length = struct.pack("<I", len(payload))
    return HEAD.pack(len(payload), crc32c(length + payload)) + payload


cdef void let_others() noexcept:
    """Lets other threads have Python's lock: there may be a million entries, and compiled code does
    not give it away by itself."""
    with nogil:
        pass


def content(payloads) -> bytes:
    """A file with these entries."""
    parts = [MAGIC]
    for each in payloads:
        parts.append(encode(each))
        if not len(parts) % ENTRIES_A_STEP:
            let_others()
    return b"".join(parts)


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
        if not len(payloads) % ENTRIES_A_STEP:
            let_others()
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


cdef int give_bytes(Op* op, bytes data) except -1:
    """A copy of `data`, with a zero behind it, which the round frees."""
    op.length = len(data)
    op.data = <uint8_t*> malloc(op.length + 1)
    if op.data == NULL:
        raise MemoryError("no memory for the journal")
    op.owns_data = True
    memcpy(op.data, <char*> data, op.length + 1)
    return 0


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
    # Entries that came since a shorter file was begun, which it does not have; None: there is none.
    cdef list added
    cdef File* shorter
    cdef uint64_t shorter_length     # 0: it is not written yet

    def __init__(self, Persister persister, str path):
        cdef EntrySearch search
        self.persister = persister
        self.path = path
        self.pending = []
        self.added = None
        self.shorter_length = 0
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
        self.shorter = file_new(self.shorter_path)

    def __dealloc__(self):
        file_free(self.file)
        file_free(self.shorter)

    @property
    def shorter_path(self) -> str:
        """Where the file is written that takes the place of this one."""
        return f"{self.path}.tmp"

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
        written = encode(payload)
        self.pending.append(written)
        if self.added is not None:
            self.added.append(written)
        self.list_it()

    cdef int list_it(self) except -1:
        if not self.listed:
            self.listed = True
            self.persister.add_journal(self)
        return 0

    cdef int freeze(self, Round* round) except -1:
        self.listed = False
        if self.shorter_length:
            self.add_written(round, self.shorter, self.shorter_length, b"".join(self.added))
            self.add_rename(round)
            self.added = None
            self.shorter_length = 0
        else:
            self.add_written(round, self.file, self.length, b"".join(self.pending))
        self.pending = []
        return 0

    cdef int add_written(self, Round* round, File* file, uint64_t offset, bytes data) except -1:
        """What has to be done for `data` to be on disk in the file, which has `offset` bytes."""
        cdef Op* op
        round_add(round, STAGE_JOURNAL, OP_OPEN, file)
        op = round_add(round, STAGE_JOURNAL, OP_WRITE, file)
        give_bytes(op, data)
        op.offset = offset
        self.length = offset + op.length
        if not self.persister.no_sync:
            round_add(round, STAGE_JOURNAL, OP_SYNC, file)
        # There is one for each vhost, and the open files that the store may have are others.
        round_add(round, STAGE_JOURNAL, OP_CLOSE, file)
        return 0

    cdef int add_rename(self, Round* round) except -1:
        """Puts the shorter file in the place of the other one."""
        cdef bytes path = os.fsencode(self.path)
        cdef bytes directory = os.fsencode(os.path.dirname(self.path))
        cdef Op* op = round_add(round, STAGE_JOURNAL, OP_RENAME, NULL)
        op.path = strdup(<char*> path)
        give_bytes(op, os.fsencode(self.shorter_path))
        if not self.persister.no_sync:
            op = round_add(round, STAGE_JOURNAL, OP_SYNC_DIRECTORY, NULL)
            op.path = strdup(<char*> directory)
        return 0

    cdef int written(self, Round* round) except -1:
        return 0

    # -- compaction --------------------------------------------------------------------------------

    def begin_shorter(self) -> int:
        """From now on what is added will be in the shorter file as well. Returns how many bytes of
        this one it stands for: those that are frozen, the last of them perhaps in a round that is
        in flight."""
        self.added = list(self.pending)
        return self.length

    def give_up_shorter(self) -> None:
        self.added = None

    def put_in_place(self, length: int) -> None:
        """The shorter file is on disk with `length` bytes: the next round completes it by what was
        added, and puts it in the place of this one."""
        self.shorter_length = length
        self.list_it()

    def rewrite(self, payloads) -> None:
        """Compaction: the journal holds just `payloads`. Waits for the disk; for start and for the
        thread that compacts."""
        data = content(payloads)
        disk.write_atomic(self.path, data)
        file_close(self.file)
        self.length = len(data)

    def delete(self) -> None:
        """Removes the file; no entry may be pending in a round, and no shorter file be begun."""
        file_close(self.file)
        disk.unlink(self.path)

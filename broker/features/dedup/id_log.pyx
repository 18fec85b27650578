# cython: language_level=3
"""Remembered message ids on disk: docs/formats/deduplication.md.

Ids are written in the round of their messages, but behind its syncs (`STAGE_BEHIND`): an id that is
found after a crash stands for a message that is safe, and a message that was confirmed has its id
there. The oldest file goes when those behind it have as many ids as the cache.
"""

import os
import struct

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy, strdup

from broker.kernel.checksum import crc32c, seed_of
from broker.store.commit.contracts cimport Dirty
from broker.store.commit.persister cimport Persister
from broker.store.files import disk
from broker.store.files.disk cimport file_free, file_new
from broker.store.files.operation cimport File, OP_MKDIR, OP_RMDIR, OP_SYNC, OP_UNLINK, OP_WRITE, Op
from broker.store.files.io_thread cimport (
    Round, STAGE_BEHIND, STAGE_MAKE, STAGE_REMOVE, round_add, round_new,
)

MAGIC = b"LVRI\x01\x00\x00\x00"
ENTRY = struct.Struct("<16sqqI")


cdef class IdLog(Dirty):
    """The ids of one queue or exchange, under `directory`. `entries_max` make a file."""

    def __init__(self, Persister persister, str parent, uint64_t incarnation, uint32_t entries_max):
        self.persister = persister
        self.directory = f"{parent}/{incarnation:016x}"
        self.incarnation = incarnation
        self.entries_max = entries_max
        self.older = []
        self.leaving = []
        self.pending = []
        self.ready = []
        self.behind = True

    def __dealloc__(self):
        file_free(self.file)

    def recover(self, problems: list) -> list:
        """[(id, expires, published)] of the last run, oldest first. The last file grows on if all
        of it is sound, else a new one is begun. Read errors are appended to `problems`."""
        cdef list found = []
        cdef Py_ssize_t before
        for name in disk.listdir(self.directory):
            if not (name.startswith("ids.") and name[4:].isdigit()):
                continue
            self.directory_made = True
            number = int(name[4:])
            path = f"{self.directory}/{name}"
            before = len(found)
            is_sound = False
            try:
                is_sound = self.read(path, number, found)
            except OSError as error:
                problems.append(
                    f"{path} cannot be read: {error.strerror}; messages with ids that only it "
                    "tells may be taken twice")
            self.older.append((number, len(found) - before))
        if self.older:
            self.number = number
            if is_sound:
                self.file = file_new(path)
                _, self.entries = self.older.pop()
        return found

    def read(self, path: str, number: int, found: list) -> bool:
        """Adds the sound entries of one file to `found`; what follows the first unsound one was
        never confirmed. Returns whether there is none."""
        data = disk.read(path)
        if data[:len(MAGIC)] != MAGIC:
            return False
        seed = seed_of(self.incarnation, number, 0)
        for at in range(len(MAGIC), len(data) - ENTRY.size + 1, ENTRY.size):
            identity, expires, published, check = ENTRY.unpack_from(data, at)
            if crc32c(data[at:at + ENTRY.size - 4], seed) != check:
                return False
            found.append((identity, expires, published))
        return (len(data) - len(MAGIC)) % ENTRY.size == 0

    def append(self, identity: bytes, expires: int, published: int) -> None:
        """Remembers an id; on disk with the next synced round."""
        self.pending.append((identity, expires, published))
        self.persister.add(self)

    def forget(self, identity: bytes) -> None:
        """The message of the id that was just appended was refused."""
        self.pending = [entry for entry in self.pending if entry[0] != identity]
        self.ready = [entry for entry in self.ready if entry[0] != identity]

    cdef int start_file(self, uint32_t number) except -1:
        """The next file; those that are not needed for a whole cache go. None goes while one is in
        use: on a full disk files wait to be written, and what is on disk is not removed for ids
        that may never be."""
        cdef Round* round
        cdef size_t address
        cdef File* old
        if self.file != NULL:
            self.older.append((self.number, self.entries))
            self.leaving.append(<size_t> self.file)
        self.number = number
        self.entries = 0
        self.file = file_new(f"{self.directory}/ids.{number:010d}")
        if self.any_busy():
            return 0
        while sum(count for _, count in self.older[1:]) >= self.entries_max:
            gone, _ = self.older.pop(0)
            path = f"{self.directory}/ids.{gone:010d}"
            round = round_new()
            for address in self.leaving:
                old = <File*> address
                if os.fsdecode(<bytes> old.path) == path:
                    self.leaving.remove(address)
                    break
            else:
                old = file_new(path)
            self.persister.files.forget(old)
            round_add(round, STAGE_REMOVE, OP_UNLINK, old)
            self.persister.background.remove(round)
        return 0

    cdef bint any_busy(self) except *:
        """Whether an operation on a file of before is in flight."""
        cdef size_t address
        for address in self.leaving:
            if (<File*> address).busy:
                return True
        return False

    cdef int take_up(self) except -1:
        self.ready += self.pending
        self.pending = []
        return 0

    cdef int freeze(self, Round* round) except -1:
        cdef Op* op
        cdef bytes data
        if self.deleted or not (self.ready or self.pending):
            return 0
        if self.pending or not round.sync:
            # An id must not be found where its message is not.
            self.persister.add(self)
        if not self.ready or not round.sync:
            return 0
        if not self.directory_made:
            self.directory_made = True
            encoded = os.fsencode(self.directory)
            op = round_add(round, STAGE_MAKE, OP_MKDIR, NULL)
            op.path = strdup(<char*> encoded)
            self.persister.note_directory(os.path.dirname(self.directory))
        entries, self.ready = self.ready, []
        parts = []
        if self.file == NULL or self.entries >= self.entries_max:
            self.start_file(self.number + 1)
            self.persister.note_directory(self.directory)
            parts.append(MAGIC)
        seed = seed_of(self.incarnation, self.number, 0)
        for identity, expires, published in entries:
            plain = ENTRY.pack(identity, expires, published, 0)[:ENTRY.size - 4]
            parts.append(plain + struct.pack("<I", crc32c(plain, seed)))
        data = b"".join(parts)
        self.persister.files.use(round, self.file)
        op = round_add(round, STAGE_BEHIND, OP_WRITE, self.file)
        op.data = <uint8_t*> malloc(len(data))
        if op.data == NULL:
            raise MemoryError("no memory for message ids")
        op.owns_data = True
        op.length = len(data)
        memcpy(op.data, <char*> data, op.length)
        op.offset = 0 if len(parts) > len(entries) else (
            len(MAGIC) + <uint64_t> self.entries * ENTRY.size)
        self.entries += <uint32_t> len(entries)
        self.persister.bytes_written += op.length
        if not self.persister.no_sync:
            round_add(round, STAGE_BEHIND, OP_SYNC, self.file)
        return 0

    cdef int written(self, Round* round) except -1:
        if self.deleted:
            self.remove_files()
        return 0

    cdef int retry(self) except -1:
        self.remove_files()
        return 0

    def delete(self) -> None:
        """Whatever the ids were of is gone."""
        self.deleted = True
        self.pending = []
        self.ready = []
        self.remove_files()

    def remove_files(self) -> None:
        """Removes all files, or waits until none is in use."""
        cdef Round* round
        cdef Op* op
        cdef size_t address
        cdef File* file
        if not self.directory_made:
            return
        if self.file != NULL:
            self.older.append((self.number, self.entries))
            self.leaving.append(<size_t> self.file)
            self.file = NULL
        if self.any_busy():
            self.persister.retry_later(self)
            return
        self.directory_made = False
        self.persister.forget_directory(self.directory)
        round = round_new()
        known = {}
        for address in self.leaving:
            known[os.fsdecode(<bytes> (<File*> address).path)] = address
        for number, _ in self.older:
            path = f"{self.directory}/ids.{number:010d}"
            if path in known:
                address = known[path]
                file = <File*> address
                self.persister.files.forget(file)
            else:
                file = file_new(path)
            round_add(round, STAGE_REMOVE, OP_UNLINK, file)
        self.older = []
        self.leaving = []
        encoded = os.fsencode(self.directory)
        op = round_add(round, STAGE_REMOVE, OP_RMDIR, NULL)
        op.path = strdup(<char*> encoded)
        self.persister.background.remove(round)

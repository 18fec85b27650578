# cython: language_level=3
"""Bodies that several queues share: written once, counted, and kept until the last reference is
removed.

A publish to two or more queues puts a large body here (`share`); each queue's record holds the
body's id and length and counts as one reference (`take`, `drop`). The body stays in memory until
the persister's next round, and consumers that keep up are served from there. A body whose last
reference is removed before that round is never written. After it, the location index has its place.

Invariants:
- Every round writes all bodies that wait, before the records that refer to them.
- Files are only appended to, and only the last one; nothing in them ever changes. Which records
  live is in the index alone.
- Ids are made here and nowhere else.

Layouts: docs/formats/bodies.md.
"""

import logging
import os
from errno import EIO

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy, strdup

from broker.kernel cimport clock
from broker.kernel.message cimport BODY_IS_REFERENCE, Message
from broker.store.bodies.blocks cimport Body, BodyBlock, BodyBlocks
from broker.store.bodies.body_index cimport BodyIndex
from broker.store.bodies.collector import Collector
from broker.store.bodies.file cimport BodyFile
from broker.store.bodies.file import toc_bytes
from broker.store.bodies.files cimport BodyFiles
from broker.store.bodies.recovery import BodyRecovery, save
from broker.store.bodies.settings import BodySettings
from broker.store.commit.contracts cimport Dirty
from broker.store.commit.persister cimport Persister
from broker.store.files import disk
from broker.store.files.body_record cimport (
    BODIES_MAGIC, BODIES_VERSION, BODY_HEAD, FILE_HEADER, FileHead, REFERENCE_BYTES, TocEntry,
)
from broker.store.files.operation cimport File, OP_UNLINK, OP_WRITE, OP_WRITE_BODIES, Op
from broker.store.files.io_thread cimport (
    Round, STAGE_REMOVE, STAGE_WRITE, round_add, round_new,
)
from broker.store.index import location_index
from broker.store.index.location cimport Location

log = logging.getLogger("leveret.store")


cdef class BodyStore(Dirty):
    """The body store of one vhost. `directory` is made by `recover`."""

    def __init__(self, Persister persister, str directory, uint64_t incarnation, settings=None):
        settings = settings or BodySettings()
        self.comes_first = True
        self.persister = persister
        self.directory = directory
        self.incarnation = incarnation
        self.settings = settings
        self.embed_below = min(settings.embed_below, 0xFFFFFFFF)
        self.blocks = BodyBlocks(persister, settings.write_buffer)
        self.located = BodyIndex(persister)
        self.files = BodyFiles()
        self.leaving = []
        self.reading = set()
        self.next_file = 1
        self.collector = Collector(self, persister)

    # -- start and end -----------------------------------------------------------------------------

    def recover(self, uint16_t boot) -> list:
        """Finds the files of the last run and what index there is. Returns sentences about what was
        wrong. `count_recovered` and `finish_recovery` follow."""
        self.blocks.boot = boot
        self.recovery = BodyRecovery(self)
        self.located.begin(self.recovery.index, self.recovery.clean)
        self.next_file = self.recovery.next_file
        return self.recovery.problems

    cdef bint count_recovered(self, const uint8_t* reference) except? True:
        """A queue's recovery found a record with this reference; False: its body does not exist.
        Raises OSError if that cannot be determined."""
        if self.located.counter is None or self.located.count_recovered(reference):
            self.references += 1
            return True
        if self.recovery.unread:
            # It may be in what could not be read: the record has to wait for it.
            raise OSError(EIO, "a shared body of it may be where the disk does not read")
        self.dangling += 1
        return False

    cdef bint count_kept(self, const uint8_t* reference) except? True:
        """A record that no queue has now, but one may have again; whether its body is there."""
        return self.located.counter is not None and self.located.count_recovered(reference)

    @property
    def knows_references(self) -> bool:
        """While starting: whether a clean stop saved the references."""
        return self.recovery is not None and self.recovery.clean

    def count_known(self, uint32_t references) -> None:
        """A queue's recovery found `count` records with references, which are counted already."""
        self.references += references

    def finish_recovery(self) -> None:
        """Every queue has reported its references."""
        if self.recovery is None:
            return
        self.recovery.finish()
        self.recovery = None
        self.located.counted()
        self.files.sum_up()
        self.let_go(list(self.files))

    def let_go(self, files) -> None:
        """These files are not in use any more: one without living bodies is removed."""
        cdef BodyFile file
        for file in files:
            file.collecting = False
            self.freed(file.first, 0)

    def keep_all(self) -> None:
        """The messages of a queue cannot be read at this start, and they may refer to any body: all
        bodies that exist now are kept until a start that can read them."""
        self.doubt()
        self.recovery.keeps_all = True

    def count_dangling(self) -> None:
        """A delivery found no body behind a reference."""
        self.dangling += 1

    def doubt(self) -> None:
        """A record with a reference cannot be read any more: its body may never be freed. The next
        start counts all references again."""
        self.unsure = True

    def clean_up(self) -> None:
        """Clean stop, before the persister's last rounds: completes the work that threads have
        begun."""
        self.collector.stop()
        self.located.hurry()
        for _ in range(2):
            self.hand_over()
            self.persister.collecting.drain()
            self.persister.indexing.drain()

    def close(self, bint clean) -> None:
        """Ends the store after the persister's last round. `clean`: saves what the next start would
        otherwise have to find out. Where that fails, it has to."""
        if self.closed or self.located.index is None:
            return
        self.closed = True
        self.persister.indexing.drain()
        try:
            self.save_index(clean)
        except Exception as error:
            # These files are a cache, and are ignored without the marker, which is written last.
            log.error("%s: the index of shared bodies cannot be saved: %s; no message is lost, "
                      "the next start rebuilds it", self.directory, error)

    def save_index(self, bint clean) -> None:
        """`close`. Raises what the disk or the index's library does; the index is closed then."""
        cdef BodyFile file
        cdef bint sound = False
        try:
            for number, length in self.located.finish():
                self.freed(number, length)
            for file in self.leaving:
                disk.unlink(file.path)
                disk.unlink(file.toc_path)
            clean = clean and not self.unsure and not self.persister.broken
            if clean and self.current is not None:
                disk.write_atomic(
                    self.current.toc_path, finished_toc(self.current, self.incarnation))
            sound = clean
        finally:
            self.located.index.close(sound)
        if sound:
            save(self)

    def delete(self) -> None:
        """The vhost is deleted, and `remove_files` follows."""
        self.closed = True
        self.collector.stop()
        # Its queues give back their references when there is no store any more that could count
        # them.
        self.blocks.forget_all()
        self.located.drop_all()

    def remove_files(self):
        """Behind `delete`: removes the files, one a step, and those in use when they are not any
        more. Their directory is removed at the next start."""
        cdef BodyFile file
        self.deleted = True
        # Each has to leave: the persister would keep one that is merely freed in its lists of open
        # and of unsynced files.
        for file in self.files:
            if self.files.get(file.first) is file and not file.flying:
                self.leave(file)
            yield

    # -- publishing --------------------------------------------------------------------------------

    cdef int share(self, Message* message) except -1:
        """Takes a body in before its message is given to queues: `message` becomes a reference to
        it. `release` has to follow, when every queue had the message."""
        cdef Body* body = self.blocks.gather(message)
        message.flags |= BODY_IS_REFERENCE
        message.reference = body.id
        self.shared += 1
        self.shared_bytes += message.body_length
        if not self.dirty:
            self.persister.add(self)
        if self.blocks.gathered >= self.blocks.capacity:
            self.persister.press()
        return 0

    cdef int release(self, const uint8_t* reference) except -1:
        """Every queue had the message. A body that none took is forgotten."""
        cdef Body* body = self.blocks.in_flight(reference)
        if body == NULL or body.file:
            # A round took it while very many queues got it.
            self.references += 1
            return self.drop(reference)
        body.references -= 1
        if body.references == 0:
            self.blocks.forget(body)
        return 0

    cdef int take(self, const uint8_t* reference, bint durable) except -1:
        """One more record refers to the body: of a publish, or of a message that moves on to
        another queue while the first one still has it."""
        cdef Body* body = self.blocks.in_flight(reference)
        cdef uint32_t file
        self.references += 1
        if body != NULL:
            body.references += 1
            if durable and not body.durable:
                body.durable = True
                if body.file:
                    self.sync_soon(body.file)
            return 0
        if self.closed and self.located.is_asked():
            return 0
        file = self.located.take(reference)
        if self.located.is_asked():
            if durable:
                # Only the index has the file's number.
                self.persister.hurry()
            return self.note_changes()
        if durable and file:
            self.sync_soon(file)
        return 0

    def sync_soon(self, uint32_t number):
        """A confirm may depend on this file now: its unsynced bytes go with the next sync."""
        cdef BodyFile file = self.files.get(number)
        if file is not None and file.file.dirty and file.file.lazy:
            self.persister.note_written(file.file, False)

    cdef int drop(self, const uint8_t* id) except -1:
        """One record less refers to the body."""
        cdef Body* body = self.blocks.in_flight(id)
        cdef Location gone
        if self.closed:
            return 0
        self.references -= 1
        if body != NULL:
            body.references -= 1
            if body.references == 0 and body.file == 0:
                self.cancelled += 1
                self.cancelled_bytes += body.length
                self.blocks.forget(body)
            return 0
        if self.located.drop(id, &gone):
            return self.freed(gone.file, gone.length)
        return self.note_changes() if self.located.is_asked() else 0

    cdef int note_changes(self) except -1:
        """There are changes for an index that is asked in its thread."""
        if self.located.is_full():
            self.hand_over()
        elif not self.dirty:
            self.persister.add(self)
        return 0

    def hand_over(self):
        """Gives the changes to the index."""
        self.located.hand_over(self.carried_out)

    def carried_out(self, freed, error):
        if error is not None:
            self.index_failed(error)
            return
        for number, length in freed:
            self.freed(number, length)

    def index_failed(self, error):
        """What is in the index may not be true any more. That of a store that ends need not be."""
        self.doubt()
        if not isinstance(error, location_index.IndexHasNoRoom):
            # Synced data is not affected: the next start only rebuilds the index.
            self.persister.give_up(f"the location index failed: {error}", False)

    cdef int freed(self, uint32_t number, uint32_t length) except -1:
        """A record lost its last reference."""
        cdef BodyFile file = self.files.get(number)
        if file is None:
            return 0
        if length > file.valid:
            # A file is removed when its live bytes reach 0: with a wrong count, living bodies would
            # be removed with it.
            log.error("%s: live-byte count underflow; keeping the file", file.path)
            self.doubt()
            return 0
        self.files.died(file, length)
        if length:
            file.dropped_at = clock.now_ms / 1000.0
        if (file.valid == 0 and file.sealed and not file.flying and not file.collecting
                and not self.closed):
            self.leave(file)
        return 0

    def sync_failed(self, text) -> None:
        """A sync outside the rounds failed: see `Persister.give_up`."""
        self.persister.give_up(text)

    # -- rounds ------------------------------------------------------------------------------------

    cdef int freeze(self, Round* round) except -1:
        cdef BodyBlock* block = self.blocks.first_block
        cdef BodyBlock* following
        cdef BodyBlock* last = self.blocks.written_blocks
        cdef Body* body
        cdef BodyFile file
        cdef Op* op = NULL
        cdef File* open_file = NULL
        cdef TocEntry entry
        cdef uint32_t size
        self.hand_over()
        if self.closed:
            return 0
        while last != NULL and last.next != NULL:
            # These found no space in the last round.
            last = last.next
        while block != NULL:
            following = block.next
            block.next = NULL
            body = block.first
            if body == NULL:
                self.blocks.release_block(block)
                block = following
                continue
            open_file = NULL
            while body != NULL:
                size = BODY_HEAD + body.length
                file = self.file_for(round, size)
                body.file = file.first
                body.offset = <uint32_t> file.size
                memcpy(entry.id, body.id, 16)
                entry.offset = body.offset
                entry.length = size
                file.toc.add(&entry, sizeof(TocEntry))
                self.files.grew(file, size)
                file.flying += 1
                self.persister.note_written(
                    file.file, not body.durable and not (
                        file.file.dirty and not file.file.lazy))
                if open_file == file.file and body.before != NULL and (
                        body.before.position + BODY_HEAD + body.before.length == body.position):
                    op.length += size
                else:
                    op = round_add(round, STAGE_WRITE, OP_WRITE_BODIES, file.file)
                    op.can_wait = True
                    op.data = block.data + body.position
                    op.length = size
                    op.offset = body.offset
                    op.incarnation = self.incarnation
                    open_file = file.file
                    self.buffer_writes += 1
                self.persister.bytes_written += size
                self.written_bodies += 1
                self.written_bytes += body.length
                if body.length >= <uint64_t> self.settings.own_file:
                    self.seal(file)
                    open_file = NULL
                body = body.after
            if last == NULL:
                self.blocks.written_blocks = block
            else:
                last.next = block
            last = block
            block = following
        self.blocks.first_block = self.blocks.last_block = NULL
        self.blocks.gathered = 0
        return 0

    cdef BodyFile file_for(self, Round* round, size_t size):
        """The file that takes a record of this size; the large ones have one of their own."""
        cdef BodyFile file = self.current
        cdef FileHead* head
        cdef Op* op
        cdef bint alone = size >= <size_t> self.settings.own_file + BODY_HEAD
        if not alone and file is not None and (
                file.size + size <= <uint64_t> self.settings.file_size
                or file.size <= FILE_HEADER):
            self.persister.files.use(round, file.file)
            return file
        if not alone and file is not None:
            self.seal(file)
        file = BodyFile(self.directory, self.next_file, self.next_file, 0)
        self.next_file += 1
        self.files.add(file)
        self.persister.files.use(round, file.file)
        self.persister.note_directory(self.directory)
        head = <FileHead*> malloc(sizeof(FileHead))
        if head == NULL:
            raise MemoryError("no memory for a file's header")
        head.magic = BODIES_MAGIC
        head.version = BODIES_VERSION
        head.first = head.last = file.first
        op = round_add(round, STAGE_WRITE, OP_WRITE, file.file)
        op.data = <uint8_t*> head
        op.owns_data = True
        op.length = FILE_HEADER
        self.files.grew(file, FILE_HEADER)
        if not alone:
            self.current = file
        return file

    cdef int seal(self, BodyFile file) except -1:
        """The file is complete: its table of contents is written beside it."""
        file.sealed = True
        if self.current is file:
            self.current = None
        if not file.valid and not file.flying:
            # All of it died while it was the current one.
            file.toc.release()
            return self.leave(file)
        self.persister.background.write_files(
            self.directory,
            {os.path.basename(file.toc_path): finished_toc(file, self.incarnation)})
        return 0

    cdef int written(self, Round* round) except -1:
        cdef BodyBlock* block = self.blocks.written_blocks
        cdef BodyBlock* following
        cdef Body* body
        cdef Body* after
        cdef BodyFile file
        cdef BodyBlock** kept = &self.blocks.written_blocks
        self.blocks.written_blocks = NULL
        while block != NULL:
            following = block.next
            if self.persister.postponed.holds(block.data, block.length):
                block.next = NULL
                kept[0] = block
                kept = &block.next
                block = following
                continue
            body = block.first
            while body != NULL:
                after = body.after
                file = self.files.get(body.file)
                file.flying -= 1
                if body.references and not self.closed:
                    self.files.lives(file, <uint64_t> BODY_HEAD + body.length)
                    self.located.add(body, BODY_HEAD + body.length)
                if not file.flying:
                    self.freed(file.first, 0)
                    if self.deleted:
                        self.leave(file)
                self.blocks.landed(body)
                body = after
            self.blocks.release_block(block)
            block = following
        self.hand_over()
        self.retry()
        return 0

    # -- files that go -----------------------------------------------------------------------------

    cdef int leave(self, BodyFile file) except -1:
        """All bodies in the file are dead, or another file replaces it: it is removed when no
        reader uses it."""
        cdef Round* round
        cdef Op* op
        self.files.remove(file)
        if file.file.busy or file.flying:
            self.leaving.append(file)
            self.persister.retry_later(self)
            return 0
        self.persister.forget(file.file)
        round = round_new()
        # The bodies are removed first: a table of contents without its file is ignored.
        round_add(round, STAGE_REMOVE, OP_UNLINK, file.file)
        file.file = NULL
        encoded = os.fsencode(file.toc_path)
        op = round_add(round, STAGE_REMOVE, OP_UNLINK, NULL)
        op.path = strdup(<char*> encoded)
        return self.persister.background.remove(round)

    cdef int retry(self) except -1:
        leaving, self.leaving = self.leaving, []
        for file in leaving:
            self.leave(file)
        return 0

    # -- collecting --------------------------------------------------------------------------------

    def tick(self, double now) -> None:
        """Called from time to time: starts a collection if it is worth it. `now` is the broker's
        clock, in seconds."""
        if not self.closed and self.located.index is not None:
            self.collector.tick(now)

    def living_of(self, entries, uint32_t number) -> list:
        """Which of a file's (id, offset, length) the index still points to. For the collector's
        thread."""
        return self.located.living_of(entries, number)

    def replace(self, run, BodyFile merged, bytes moves, lost, done) -> None:
        """The merged file is on disk: its records stand for those of the run's files from now on,
        but for the `lost` ones. Calls `done()` afterwards."""
        def moved(size, error):
            if error is not None:
                self.index_failed(error)
                return
            if self.deleted:
                return
            self.moved(run, merged, size)
            done()

        self.hand_over()
        self.located.move(moves, merged.first, lost, moved)

    def moved(self, run, BodyFile merged, uint64_t size):
        cdef BodyFile old
        merged.valid = size
        merged.sealed = True
        merged.dropped_at = clock.now_ms / 1000.0
        self.files.add(merged)
        for old in run:
            self.leave(old)
        self.freed(merged.first, 0)

    # -- for Python: dead letters, the API ---------------------------------------------------------

    def share_bytes(self, bytes body) -> bytes:
        """Takes in a body that is published to several queues; `release_bytes` has to follow.
        Returns its reference."""
        cdef Message message
        message.flags = 0
        message.large = NULL
        message.body = <const uint8_t*> <char*> body
        message.body_length = <uint32_t> len(body)
        self.share(&message)
        return message.reference[:REFERENCE_BYTES]

    def release_bytes(self, bytes reference) -> None:
        self.release(reference)

    def drop_ids(self, ids) -> None:
        """One record less for each of the ids."""
        cdef bytes id
        for id in ids:
            self.drop(id)

    # -- figures -----------------------------------------------------------------------------------

    @property
    def unused(self) -> bool:
        """Whether no body was ever shared here, as far as is known."""
        return self.shared == 0 and self.references == 0 and len(self.files) == 0

    def figures(self) -> dict:
        """What there is and what was done; bytes and counts."""
        collector = self.collector
        return {
            "files": len(self.files),
            "bytes": self.files.size,
            "live_bytes": self.files.valid,
            "garbage_bytes": self.files.garbage,
            "references": self.references,
            "in_flight": self.blocks.flying.count,
            "in_flight_bytes": self.blocks.gathered,
            "shared": self.shared,
            "shared_bytes": self.shared_bytes,
            "written": self.written_bodies,
            "written_bytes": self.written_bytes,
            "buffer_writes": self.buffer_writes,
            "cancelled_writes": self.cancelled,
            "cancelled_bytes": self.cancelled_bytes,
            "in_flight_hits": self.in_flight_hits,
            "in_flight_misses": self.in_flight_misses,
            "cache_hits": self.cache_hits,
            "cache_misses": self.cache_misses,
            "dangling": self.dangling,
            "gc_runs": collector.runs,
            "gc_copied_bytes": collector.copied_bytes,
            "gc_reclaimed_bytes": collector.reclaimed_bytes,
            "gc_running": int(collector.busy),
            "index": self.located.index.figures() if self.located.index is not None else None,
        }


def finished_toc(BodyFile file, uint64_t incarnation):
    rows = (<const char*> file.toc.data)[:file.toc.length] if file.toc.length else b""
    file.toc.release()
    return toc_bytes(rows, incarnation, file.first)

# cython: language_level=3
"""Group commit: collects writes, passes them to the writing thread in rounds, and notifies those
who wait for a sync.

A round starts when a confirm, a definition change or a transaction waits and no round is in flight,
when unwritten tails grow too large, and otherwise every 200 ms. A sync that is requested while a
round is in flight is part of the next one: no timer delays a confirm. A round that would hold too
many files open is written in parts, one after the other; its waiters are notified after the last.
The first write or sync that fails ends all confirming (`failed`); the process then exits with 74
and recovers at its next start.
"""

import collections
import logging
import os
import select
import traceback

from libc.stdint cimport uint64_t
from libc.string cimport memset, strdup

from broker.kernel.clock cimport monotonic_ns
from broker.kernel.contracts cimport Confirmer, Origins
from broker.kernel.through cimport long_list
from broker.store.commit.background cimport Background
from broker.store.commit.content_file cimport ContentFiles
from broker.store.commit.contracts cimport Dirty
from broker.store.commit.direct_writes cimport DirectWrites
from broker.store.commit.failed_reads import FailedReads
from broker.store.commit.postponed cimport Postponed
from broker.store.commit.quarantine import Quarantine
from broker.store.commit.second_turn cimport SecondTurn
from broker.store.commit.sync_method import ALL, EACH, MEASURED, SyncMethod
from broker.store.commit.tail_memory cimport give_back_spares
from broker.store.commit.worker import Worker
from broker.store.files.disk cimport directory_open, file_free, file_new, run_op
from broker.store.files.file_list cimport list_file, unlist, unlist_all
from broker.store.files.operation cimport File, Op, OP_SYNC, OP_SYNC_DIRECTORY, OP_SYNC_FILE_SYSTEM
from broker.store.files.io_thread cimport (
    IoThread, Round, SLICE_NS, STAGE_DIRECTORIES, STAGE_SYNC, STAGES, passes,
    round_add, round_free, round_new,
)
from broker.store.files.observer cimport marked
from broker.store.files.observer import KINDS
from broker.store.files.open_files cimport OpenFiles
from broker.store.files.planted cimport planted
from broker.store.files.waits import Waits

log = logging.getLogger("leveret.store")

# Threads that take part in the syncs of one round, beside the persister's own.
cdef enum:
    SYNC_HELPERS = 3

cdef enum:
    CALLED_AT_ONCE = 32          # callbacks of a round that need no look at the clock
    FROZEN_AT_ONCE = 16          # stores of a round, the same
    MANY_DIRTY = 1024
    # The longest time for which a part of a round is gathered. `freeze` of a queue takes 10 to
    # 20 microseconds, and `written` as long again.
    PART_NS = 1000000

acks_every_ns = 25000000


cdef class Persister:
    """`wake()` asks for the end of a turn, in which `collect` is called."""

    def __init__(self, str root, wake, *, uint64_t tail_limit=64 << 20,
                 uint64_t segment_size=8 << 20, uint64_t open_files_limit=4096, bint no_sync=False,
                 str sync_method=MEASURED, double read_retry_after=1.0):
        self.root = root
        self.files = OpenFiles(open_files_limit)
        self.background = Background(root)
        self.wake = wake
        self.writer = IoThread("persister", SYNC_HELPERS)
        self.direct = DirectWrites(sync_method)
        self.reader = IoThread("reader")
        self.contents = ContentFiles(root, self.has_to_wait_for_large)
        self.indexing = Worker("indexing")
        self.collecting = Worker("collecting")
        self.failed_reads = FailedReads(read_retry_after, progress=self.reads_under_way)
        self.failed = None
        self.relieved = None
        self.no_sync = no_sync
        self.first = []
        self.dirty = long_list()
        self.with_acks = long_list()
        self.behind = []
        self.left = []
        self.left_behind = []
        self.flying = []
        self.origins = Origins()
        self.confirmers = []
        self.flying_confirmers = []
        self.journals = []
        self.flying_journals = []
        self.retries = []
        self.readers = {}
        self.sync_method = SyncMethod(sync_method)
        self.quarantine = Quarantine(f"{root}/quarantine")
        self.root_file = file_new(root)
        self.waiting = collections.deque()
        self.in_flight = NULL
        self.postponed = Postponed()
        self.second_turn = SecondTurn()
        self.gathering = 1
        self.completed = 0
        self.tail_limit = tail_limit
        self.segment_size = segment_size
        self.space_ahead = 64 << 10
        self.round_files = max(<uint64_t> 1, open_files_limit // 2)
        self.unsynced_directories = {}
        self.sync_times = Waits()
        self.confirm_times = Waits()

    @property
    def threads(self) -> dict:
        """What becomes readable when a thread has done something, and what has to be called then.
        """
        return {
            self.writer: self.on_written,
            self.reader: self.on_read,
            self.background.remover: self.on_removed,
            self.contents.thread: self.contents.on_done,
            self.indexing: self.indexing.on_done,
            self.collecting: self.collecting.on_done,
        }

    def reads_under_way(self) -> tuple:
        """See `broker.store.commit.failed_reads.Progress`."""
        return (self.reads, self.reader.open), (self.indexing.begun, self.indexing.open)

    @property
    def io_threads(self) -> tuple:
        return self.writer, self.reader, self.background.remover, self.contents.thread

    def __dealloc__(self):
        unlist_all(&self.unsynced)
        unlist_all(&self.lazily_unsynced)
        unlist_all(&self.flying_unsynced)
        file_free(self.root_file)

    def open_root(self):
        """Opens the data directory, before anything is written. A file system reports a failed
        write once to each descriptor that was open before, and to one opened later only if it was
        not reported yet: so the descriptor of all our syncs stays open. Raises OSError."""
        error = directory_open(self.root_file)
        if error:
            raise OSError(error, os.strerror(error), self.root)

    def sync_file_system(self):
        """Syncs everything in the data directory, at once. Raises OSError."""
        cdef Op op
        memset(&op, 0, sizeof(Op))
        op.kind = OP_SYNC_FILE_SYSTEM
        op.file = self.root_file
        with nogil:
            run_op(&op)
        if op.error:
            raise OSError(op.error, os.strerror(op.error), self.root)

    def start(self):
        for thread in self.io_threads:
            thread.start()

    # -- asking ------------------------------------------------------------------------------------

    cdef int add(self, Dirty store) except -1:
        """The store has bytes to write, some time in the next 200 ms."""
        if not store.dirty:
            store.dirty = True
            if store.comes_first:
                self.first.append(store)
            elif store.behind:
                self.behind.append(store)
            else:
                self.dirty.append(store)
        return 0

    cdef int add_acks(self, Dirty store) except -1:
        """A round left the acks of this store to one that follows soon."""
        if not store.has_acks:
            store.has_acks = True
            self.with_acks.append(store)
        return 0

    cdef bint has_dirty(self) noexcept:
        """Whether any store has bytes to write that no round has."""
        return (len(self.first) > 0 or len(self.dirty) > 0 or len(self.behind) > 0
                or len(self.with_acks) > 0)

    cdef bint has_few_dirty(self) noexcept:
        """Whether few queues have anything to write."""
        return len(self.dirty) < MANY_DIRTY

    cdef int retry_later(self, Dirty store) except -1:
        """The store waits until some of its files are not in flight: `retry` is called after the
        next round, once, however many files it has to look at then."""
        if not store.waits_for_files:
            store.waits_for_files = True
            self.retries.append(store)
        return 0

    cdef int want_confirm(self, Confirmer confirmer) except -1:
        """All messages of the confirmer so far must be synced; then its `confirm` is called."""
        if not confirmer.confirming:
            confirmer.confirming = True
            self.confirmers.append(confirmer)
            if self.confirm_asked == 0:
                self.confirm_asked = monotonic_ns()
        self.sync_asked = True
        return self.press()

    cdef int press(self) except -1:
        """A tail is full, or a reader waits for a watermark: write at the end of this turn, without
        a sync."""
        if not self.urgent:
            self.urgent = True
            self.wake()
        return 0

    def after_round(self, callback, bint sync=True, records=None):
        """Calls `callback()` when all that was asked for up to now is written (and synced). Returns
        the round's number. Without `records` (by default the value of `sync`) it does not wait for
        messages that a full disk keeps in memory, only for acks and definitions."""
        self.waiting.append(
            (self.gathering, self.background.removals, callback,
             sync if records is None else records))
        self.urgent = True
        if sync:
            self.sync_asked = True
        self.wake()
        return self.gathering

    def add_journal(self, journal):
        """The journal has entries to write: they go first in the next round, with a sync."""
        if journal not in self.journals:
            self.journals.append(journal)

    @property
    def under_pressure(self):
        return self.tail_bytes > self.tail_limit

    @property
    def reserve_is_taken(self):
        """Whether unwritten messages take a quarter more than their memory. That quarter is for
        publishers that have sent few of them."""
        return self.tail_bytes > self.tail_limit + self.tail_limit // 4

    def has_to_wait_for_large(self):
        """`has_to_wait`, or large bodies wait to be written: no other one is read back."""
        return self.large_bytes > self.tail_limit or self.has_to_wait()

    def has_to_wait(self):
        """Whether a writer with more data has to wait until `relieved` is called."""
        if self.tail_bytes > self.tail_limit:
            self.pressed = True
        return self.pressed

    @property
    def has_written_all(self):
        """Whether nothing waits for a round or a removal, and no round is in flight."""
        return self.in_flight == NULL and not (
            self.broken or self.has_dirty() or self.left or self.left_behind or self.journals
            or self.waiting
            or self.postponed.any) and self.background.is_removed(self.background.removals)

    cdef bint is_awaited_for_one(self) noexcept:
        """Whether a round is in flight that confirms messages of a single queue."""
        return self.in_flight != NULL and self.flying_asked and len(self.flying) < 2

    @property
    def waits_for_disk(self):
        """For how many seconds the round in flight has been with the writing thread; 0 if there is
        none."""
        return 0.0 if self.in_flight == NULL else (monotonic_ns() - self.submitted) / 1e9

    # -- rounds ------------------------------------------------------------------------------------

    def collect(self):
        """End of a turn: starts a round if one is asked for, or the tails exceed their limit, and
        no round is in flight. Returns what begins it, when the connections have written: None if
        it is with the writing thread."""
        if self.calls_left:
            self.call_waiting()
        if self.in_flight == NULL and (
                self.urgent or (self.tail_bytes > self.tail_limit and self.has_dirty()
                                and not self.postponed.any)):
            if self.puts_off():
                return None
            self.start_round(self.sync_asked, True)
            if self.is_held:
                return self.begin_held
        return None

    cdef bint puts_off(self) except? True:
        """Whether the round begins in the next turn only, with what is published until then: one
        that confirms messages of a single queue, since of several a turn brings enough."""
        if self.second_turn.has_come(self.tail_bytes) or not (
                self.second_turn.is_hurried and self.confirm_asked and len(self.dirty) < 2
                and not self.waiting and not self.journals
                and self.tail_bytes <= self.tail_limit
                and self.second_turn.is_worth_while(self.tail_bytes)):
            return False
        self.wake()
        return True

    def begin_held(self):
        """Begins the round that needs no thread. To ask the disk for it takes a while, for which
        deliveries do not wait."""
        self.is_held = False
        if not self.direct.begin(self.in_flight, self.writer.event_fd):
            self.writer.submit(self.in_flight)

    def tick(self):
        """Every 200 ms: writes and syncs data without a waiting client."""
        self.failed_reads.tick()
        give_back_spares()
        self.thorough = True
        if (self.has_dirty() or self.journals or self.waiting or self.unsynced.count
                or self.lazily_unsynced.count or self.background.has_orphans()
                or self.postponed.any):
            if self.in_flight == NULL:
                self.start_round(True)
            else:
                self.urgent = self.sync_asked = True
        elif self.in_flight == NULL and not self.broken:
            self.thorough = False
            self.background.work()
            # What was consumed before it was written has left no round behind.
            self.relieve()

    cdef void hurry(self) noexcept:
        """Syncs that were due within 200 ms are part of the next sync."""
        cdef File* file
        while self.lazily_unsynced.first != NULL:
            file = self.lazily_unsynced.first.file
            file.lazy = False
            unlist(&file.unsynced)
            list_file(&self.unsynced, &file.unsynced, file)

    cdef bint has_many_unsynced(self) noexcept:
        """Whether as many files have unsynced bytes, and stay open, as one part may use."""
        return self.unsynced.count + self.lazily_unsynced.count >= self.round_files

    cdef int start_round(self, bint sync, bint in_turn=False) except -1:
        """Builds a round and passes it to the thread; one that needs none is held for the end of
        the turn, if it is called `in_turn`. An internal error in it counts as a failed disk:
        confirms end."""
        if self.broken:
            return 0
        try:
            self.gather(sync, in_turn)
        except Exception:
            self.give_up(f"an internal error while gathering a round: {traceback.format_exc()}")
        return 0

    cdef int give_up(self, str text, bint doubtful=True) except -1:
        """No more rounds, no more confirms: the process ends and recovers at its next start. If
        not `doubtful`, what was synced is known to be on disk."""
        self.broken = True
        self.failed(text, doubtful)
        return 0

    cdef int gather(self, bint sync, bint in_turn) except -1:
        cdef Round* round = round_new()
        cdef Dirty store
        cdef bint has_all
        if not (self.left or self.left_behind):
            self.begin_parts(round, sync)
        round.number = self.gathering - 1
        round.sync = self.left_sync
        round.thorough = self.left_thorough
        round.acks = self.left_acks
        self.postponed.give(round)
        # Stores that come first (shared bodies) write in every part: the records of this part may
        # refer to what they got since the part before.
        self.flying, self.first = self.first, []
        for store in self.flying:
            store.dirty = False
            store.freeze(round)
        has_all = self.freeze_part(round)
        if not has_all and not self.has_many_unsynced():
            # The last part syncs the files of all parts: a sync for each part may take 100 ms for
            # 1 ms of writing.
            round.sync = round.thorough = False
        elif self.has_many_unsynced():
            # Syncs before the next part opens more.
            round.sync = round.thorough = True
        if round.thorough:
            self.hurry()
            for directory in self.background.take_orphans():
                self.note_directory(directory)
        if round.sync and not self.no_sync and (
                not planted(b"confirm before the sync") or round.thorough):
            self.add_syncs(round)
        self.in_flight = round
        if self.flying_asked == 0:
            self.flying_asked = self.confirm_asked
        self.confirm_asked = 0
        self.submitted = monotonic_ns()
        self.rounds += 1
        if planted(b"confirm before the write"):
            self.completed = self.attempted = round.number
            self.call_waiting()
        # Before the thread opens more.
        self.files.close_some()
        self.is_held = in_turn and not self.writer.full and self.direct.suits(round)
        if not self.is_held:
            self.writer.submit(round)
        return 0

    cdef int begin_parts(self, Round* round, bint sync) except -1:
        """What was asked for up to now is one round, which may be written in parts."""
        cdef Dirty store
        cdef Confirmer confirmer
        self.left_acks = self.takes_acks()
        if self.left_acks and self.with_acks:
            for store in self.with_acks:
                store.has_acks = False
                self.add(store)
            self.with_acks = long_list()
        # From its end on: taking the first of 100,000 would move the others.
        self.left, self.dirty = self.dirty, long_list()
        self.left.reverse()
        self.left_behind, self.behind = self.behind, []
        self.left_behind.reverse()
        for store in self.left_behind:
            store.take_up()
        self.gathering += 1
        self.urgent = False
        self.sync_asked = False
        for journal in self.journals:
            sync = True
            (<Dirty> journal).freeze(round)
        self.flying_journals = self.journals
        self.journals = []
        self.left_sync = sync
        self.left_thorough = sync and self.thorough
        if sync:
            self.thorough = False
        self.flying_confirmers = self.confirmers
        self.confirmers = []
        for confirmer in self.flying_confirmers:
            confirmer.confirming = False
            confirmer.flying = confirmer.wanted
        return 0

    cdef void hurry_acks(self) noexcept:
        """What was settled was handed over to another queue: after a kill it would be in both until
        its ack is written."""
        self.acks_written = 0

    cdef bint takes_acks(self) noexcept:
        """Whether the next round has all acks: there was none for a moment, or what waits for this
        one may have to do with them."""
        cdef uint64_t now = monotonic_ns()
        if (now - self.acks_written < acks_every_ns and not self.thorough and not self.journals
                and not self.waiting):
            return False
        self.acks_written = now
        return True

    cdef bint freeze_part(self, Round* round) except? True:
        """Adds what the next stores have to write, as much as fits into a part. Returns whether
        this part has to be synced: it is the last, or has a journal or a store of `left_behind`."""
        cdef uint64_t used = self.files.used
        cdef uint64_t end = monotonic_ns() + PART_NS
        cdef Py_ssize_t taken = 0
        cdef bint has_behind = False
        cdef Dirty store
        while self.left or self.left_behind:
            if self.files.used - used >= self.round_files or (
                    taken >= FROZEN_AT_ONCE and monotonic_ns() > end):
                # A store of `left_behind` refers to others' data, which have to be on disk first.
                return has_behind or len(self.flying_journals) > 0
            if self.left:
                store = self.left.pop()
            else:
                store = self.left_behind.pop()
                has_behind = True
            taken += 1
            store.dirty = False
            store.freeze(round)
            self.flying.append(store)
        return True

    cdef int note_written(self, File* file, bint lazy) except -1:
        """The round writes to this file: a sync has to cover it, this round's or, if `lazy`, one in
        the next 200 ms."""
        if self.no_sync:
            # No sync ever makes it clean, and only a clean file may be closed.
            return 0
        if file.dirty and file.lazy and not lazy:
            self.unsync(file)
        if not file.dirty:
            file.dirty = True
            file.lazy = lazy
            list_file(&self.lazily_unsynced if lazy else &self.unsynced, &file.unsynced, file)
        return 0

    def note_directory(self, str path):
        """A file or a directory was made in this directory: its entry has to be synced, parents
        first."""
        if not self.no_sync:
            self.unsynced_directories[path] = None

    cdef int add_syncs(self, Round* round) except -1:
        cdef Op* op
        cdef File* file
        round.sync_files = <int> self.unsynced.count + <int> len(self.unsynced_directories)
        if (round.sync_files and not self.direct.suits(round)
                and self.sync_method.choose(round.sync_files) == ALL):
            round.whole = True
            round_add(round, STAGE_SYNC, OP_SYNC_FILE_SYSTEM, self.root_file)
        else:
            for path in sorted(self.unsynced_directories, key=len):
                op = round_add(round, STAGE_DIRECTORIES, OP_SYNC_DIRECTORY, NULL)
                encoded = os.fsencode(path)
                op.path = strdup(<char*> encoded)
        while self.unsynced.first != NULL:
            file = self.unsynced.first.file
            if not round.whole:
                round_add(round, STAGE_SYNC, OP_SYNC, file)
            # The file must not be removed before the round is over, not even if one syncfs covers
            # all.
            file.busy += 1
            unlist(&file.unsynced)
            list_file(&self.flying_unsynced, &file.unsynced, file)
        self.unsynced_directories = {}
        self.syncs += 1
        return 0

    def forget_directory(self, str path):
        """The directory is being removed: it is not synced any more."""
        self.unsynced_directories.pop(path, None)

    cdef void unsync(self, File* file) noexcept:
        """No sync of the file is due any more."""
        file.dirty = False
        unlist(&file.unsynced)

    cdef void forget(self, File* file) noexcept:
        """The file is being removed: it is neither synced any more nor one of the open ones."""
        self.files.forget(file)
        self.unsync(file)

    def on_written(self):
        """The writer's eventfd is readable."""
        cdef bint again = False
        self.writer.drain()
        cdef Round* round = self.direct.ended(&again)
        if again:
            self.writer.submit(round)
            round = NULL
        if round == NULL:
            round = self.writer.finished()
        else:
            round.nanoseconds = monotonic_ns() - self.submitted
            self.sync_times.append(round.nanoseconds / 1e9)
            # It says nothing about the syncs of the thread.
            round.sync_files = 0
        while round != NULL:
            if self.broken:
                # Nothing comes of it any more, but a stop waits for its end.
                self.in_flight = NULL
            else:
                try:
                    self.finish(round)
                except Exception:
                    self.give_up(f"an internal error after a round: {traceback.format_exc()}")
            round = self.writer.finished()

    def on_read(self):
        """The reader's eventfd is readable."""
        self.reader.drain()
        cdef Dirty owner
        cdef Round* round = self.reader.finished()
        while round != NULL:
            release_busy(round)
            owner = self.readers.pop(<size_t> round)
            owner.read_done(round)
            round_free(round)
            round = self.reader.finished()
        self.files.close_some()

    def on_removed(self):
        """The remover's eventfd is readable."""
        self.background.take_back()
        self.call_waiting()

    cdef int finish(self, Round* round) except -1:
        cdef Dirty store
        cdef Confirmer confirmer
        cdef File* file
        cdef list flying = self.flying
        cdef list confirmers
        self.in_flight = NULL
        self.flying = []
        release_busy(round)
        if round.error:
            where = "?" if round.failed_path == NULL else os.fsdecode(<bytes> round.failed_path)
            text = f"{os.strerror(round.error)} in {kind_of(round.failed_kind)} of {where}"
            doubtful = not passes(round.failed_kind, round.error)
            round_free(round)
            if self.writer.impatient and not doubtful:
                self.end_without_room(text)
                return 0
            return self.give_up(text, doubtful)
        if round.sync:
            if round.sync_files:
                self.sync_times.append(round.sync_nanoseconds / 1e9)
                self.sync_method.took(
                    ALL if round.whole else EACH, round.sync_files, round.sync_nanoseconds / 1e9)
        while self.flying_unsynced.first != NULL:
            file = self.flying_unsynced.first.file
            file.busy -= 1
            file.is_unsynced = False
            # Bytes that were frozen while this round was in flight belong to the next one, which
            # notes the file again.
            self.unsync(file)
            if file.short_of_space:
                self.note_written(file, False)
        if self.writer.full:
            self.postponed.keep(round)
        for journal in self.flying_journals:
            (<Dirty> journal).written(round)
        self.flying_journals = []
        for store in flying:
            store.written(round)
            if self.postponed.any:
                # It is called again when its records are written.
                self.add(store)
        retries = self.retries
        self.retries = []
        for store in retries:
            store.waits_for_files = False
            store.retry()
        if round.thorough:
            self.background.remove_orphans()
            self.background.work()
        if self.left or self.left_behind:
            marked(b"part of a round", round.number)
            round_free(round)
            return self.start_round(self.left_sync)
        confirmers = self.flying_confirmers
        self.flying_confirmers = []
        self.attempted = round.number
        round_free(round)
        if not self.postponed.any:
            self.completed = self.attempted
            for confirmer in confirmers:
                confirmer.confirm()
            if self.flying_asked:
                self.confirm_times.append((monotonic_ns() - self.flying_asked) / 1e9)
                self.flying_asked = 0
        else:
            for confirmer in confirmers:
                if not confirmer.confirming:
                    confirmer.confirming = True
                    self.confirmers.append(confirmer)
            self.sync_asked = True
        self.call_waiting()
        self.relieve()
        # Whatever gathered meanwhile must not wait for the next received byte.
        if self.urgent or (self.tail_bytes > self.tail_limit and not self.postponed.any):
            self.wake()
        return 0

    cdef int relieve(self) except -1:
        """Lets writers continue that wait for memory, if there is some."""
        if self.pressed and self.tail_bytes <= self.tail_limit // 2:
            self.pressed = False
            self.relieved()
        self.contents.go_on()
        return 0

    cdef int call_waiting(self) except -1:
        """Calls the callbacks whose round is over, in their order. A callback also waits for the
        removals of files that began before it: a removal may be what settles messages (a purge,
        the last acks of a segment). Thousands may have waited for one round: those that do not fit
        into a slice are called at the end of the next turn; when the broker stops, all at once.
        """
        cdef uint64_t end = monotonic_ns() + SLICE_NS
        cdef int called = 0
        kept = []
        self.calls_left = False
        while self.waiting:
            if called >= CALLED_AT_ONCE and monotonic_ns() > end and not self.writer.impatient:
                self.calls_left = True
                self.wake()
                break
            called += 1
            number, removals, callback, records = self.waiting[0]
            if number > self.attempted or not self.background.is_removed(removals):
                break
            self.waiting.popleft()
            if records and number > self.completed:
                kept.append((number, removals, callback, records))
                continue
            callback()
        self.waiting.extendleft(reversed(kept))
        return 0

    cdef int read(self, Round* round, Dirty owner) except -1:
        """Hands a round to the reading thread; `owner.read_done` follows, even if its queue is
        deleted meanwhile."""
        self.reads += 1
        self.readers[<size_t> round] = owner
        self.reader.submit(round)
        return 0

    def stop(self):
        """Writes and syncs everything, then ends the threads. For the end of the process; the loop
        does not run any more."""
        self.writer.impatient = True
        if self.calls_left:
            self.call_waiting()
        for _ in range(3):
            self.drain_writer()
            self.thorough = True
            if not self.broken:
                self.start_round(True)
        self.drain_writer()
        if self.postponed.any and not self.broken:
            self.end_without_room("no space left on the disk for messages in memory")
        for thread in self.io_threads:
            thread.stop()
        self.indexing.stop()
        self.collecting.stop()

    def end_without_room(self, text):
        """The broker stops on a full disk. The rest was never acknowledged to a client: messages
        without a confirm, and acks, which have no answer."""
        self.broken = True
        log.error("%s: stopping without free space. No confirmed message is lost; "
                  "messages whose acks could not be written are delivered again, as redelivered",
                  text)

    def drain_writer(self):
        ready = select.poll()
        ready.register(self.writer.event_fd, select.POLLIN)
        while self.in_flight != NULL:
            ready.poll()
            self.on_written()


def kind_of(int kind):
    return KINDS[kind]


cdef void release_busy(Round* round) noexcept:
    cdef int stage, i
    for stage in range(STAGES):
        for i in range(round.stages[stage].count):
            if round.stages[stage].ops[i].file != NULL:
                round.stages[stage].ops[i].file.busy -= 1

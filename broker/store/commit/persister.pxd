from libc.stdint cimport uint8_t, uint64_t

from broker.kernel.contracts cimport Confirmer, Origins
from broker.store.commit.background cimport Background
from broker.store.commit.content_file cimport ContentFiles
from broker.store.commit.contracts cimport Dirty
from broker.store.commit.direct_writes cimport DirectWrites
from broker.store.commit.postponed cimport Postponed
from broker.store.commit.second_turn cimport SecondTurn
from broker.store.files.operation cimport File, FileList
from broker.store.files.io_thread cimport IoThread, Round
from broker.store.files.open_files cimport OpenFiles


# Acks of deliveries go with the rounds of others, but not with each: with them a round takes twice
# as long.
cdef uint64_t acks_every_ns


cdef class Persister:
    cdef readonly str root
    cdef readonly OpenFiles files
    cdef readonly Background background
    cdef readonly IoThread writer
    cdef readonly DirectWrites direct   # small rounds that need no thread
    cdef readonly IoThread reader
    cdef readonly ContentFiles contents  # large bodies that are being received
    cdef readonly object indexing       # Worker: questions to an index on disk
    cdef readonly object collecting     # Worker: collecting bodies, reading through dropped records
    cdef object wake
    cdef public object failed           # called once with a sentence when a write or a sync failed
    cdef public object relieved         # called when unwritten tails are below the limit again
    cdef readonly bint no_sync
    # While starting: the last run may have delivered more than its watermarks say.
    cdef public bint doubts_marks
    cdef list first                 # dirty ones that are written before the others
    cdef list dirty
    cdef list with_acks             # those that have acks to write, which can wait for a moment
    cdef uint64_t acks_written      # monotonic ns: when a round had all acks
    cdef list behind                # those that refer to data of others
    cdef list left                  # stores of the round in flight that its later parts write,
    cdef list left_behind           # and those behind them; the next one is the last of its list
    cdef bint left_sync             # what those parts have to be
    cdef bint left_thorough
    cdef bint left_acks
    cdef uint64_t round_files       # how many files one part may use
    # Address of a round of the reader -> its owner. The thread writes into the owner's memory: this
    # reference keeps it alive until then.
    cdef dict readers
    cdef list flying
    cdef readonly Origins origins    # publishers that wait for consumers instead of the disk
    cdef list confirmers
    cdef list flying_confirmers
    cdef list journals
    cdef list flying_journals
    cdef FileList unsynced          # files with unsynced bytes
    cdef FileList lazily_unsynced   # acks files, whose sync may take up to 200 ms
    cdef FileList flying_unsynced
    cdef File* root_file            # the data directory, open for syncs of the file system
    cdef Postponed postponed        # records that found no space: they go with the next round
    cdef readonly list retries      # stores that wait until files are not in flight any more
    # A deque of (round number, removal number, callback, whether it waits for the round's records).
    cdef object waiting
    cdef bint calls_left                # of these, some wait for the next turn only
    cdef Round* in_flight
    cdef bint is_held                   # it begins when the connections have written
    cdef readonly uint64_t gathering    # number of the round being gathered
    cdef readonly uint64_t completed    # the last round that is on disk with all before it
    cdef uint64_t attempted             # the last round, even if records of it are postponed
    cdef bint urgent                    # a round has to start at the end of this turn
    cdef readonly SecondTurn second_turn    # which some rounds wait for
    cdef bint sync_asked
    cdef readonly bint broken
    cdef public uint64_t tail_bytes
    # Of large bodies that are not written. They hold up those who send such bodies and no others.
    cdef public uint64_t large_bytes
    # Of records that are written and stay in memory for consumers. They hold up no publisher.
    cdef public uint64_t kept_bytes
    cdef readonly uint64_t tail_limit
    cdef public bint pressed
    cdef readonly uint64_t segment_size
    cdef public uint64_t space_ahead         # zeros a segment may get at a time; 0: none
    cdef readonly object quarantine
    cdef readonly object failed_reads
    cdef readonly object sync_method
    cdef bint thorough              # the next round has to sync all data
    cdef dict unsynced_directories
    cdef readonly uint64_t rounds
    cdef readonly uint64_t syncs
    cdef readonly uint64_t bytes_written
    cdef readonly uint64_t segment_writes   # stretches of records written in one go
    cdef readonly uint64_t reads            # rounds given to the reading thread
    cdef readonly uint64_t segment_reads    # stretches of a segment that were not in memory
    cdef readonly object sync_times     # deque of seconds, newest last
    cdef readonly object confirm_times  # of each round, the longest that a confirm waited for it
    cdef uint64_t confirm_asked         # when the first confirm of the next round was asked for
    cdef uint64_t flying_asked
    cdef uint64_t submitted             # when the round in flight was handed over

    cdef int add(self, Dirty store) except -1
    cdef int add_acks(self, Dirty store) except -1
    cdef int retry_later(self, Dirty store) except -1
    cdef int want_confirm(self, Confirmer confirmer) except -1
    cdef int press(self) except -1
    cdef bint is_awaited_for_one(self) noexcept
    cdef void hurry(self) noexcept
    cdef bint has_many_unsynced(self) noexcept
    cdef int note_written(self, File* file, bint lazy) except -1
    cdef void unsync(self, File* file) noexcept
    cdef void forget(self, File* file) noexcept
    cdef int add_syncs(self, Round* round) except -1
    cdef int start_round(self, bint sync, bint in_turn=*) except -1
    cdef bint has_dirty(self) noexcept
    cdef bint has_few_dirty(self) noexcept
    cdef bint puts_off(self) except? True
    cdef int gather(self, bint sync, bint in_turn) except -1
    cdef int begin_parts(self, Round* round, bint sync) except -1
    cdef void hurry_acks(self) noexcept
    cdef bint takes_acks(self) noexcept
    cdef bint freeze_part(self, Round* round) except? True
    cdef int give_up(self, str text, bint doubtful=*) except -1
    cdef int call_waiting(self) except -1
    cdef int relieve(self) except -1
    cdef int read(self, Round* round, Dirty owner) except -1
    cdef int finish(self, Round* round) except -1

from libc.stdint cimport int64_t, uint32_t, uint64_t

from broker.features.delayed.entry cimport Entry
from broker.features.delayed.run cimport Run
from broker.store.commit.contracts cimport Dirty
from broker.store.commit.persister cimport Persister
from broker.store.files.io_thread cimport Round


cdef class Schedule(Dirty):
    cdef Persister persister
    cdef readonly str directory
    cdef readonly uint64_t incarnation
    cdef readonly bint durable
    cdef public uint32_t table_max      # entries that make a run
    cdef object wake
    cdef Entry* near                 # a binary heap: the entries that are in no run
    cdef uint32_t near_count
    cdef readonly uint64_t struck        # cancelled messages: a place may be another one's then
    cdef uint32_t near_capacity
    cdef list heads                  # heap of (due, segment, position, run number, run)
    cdef list unread                 # runs whose next entry the disk has to be asked for
    cdef list forming                # runs whose records are not synced yet
    cdef list writing                # runs whose file is in the round in flight
    cdef list leaving                # finished runs whose files are busy
    cdef Run reading
    cdef readonly uint32_t next_number
    cdef readonly object cancelled   # Cancelled: what the index names and is not released
    cdef bint deleted
    cdef public bint directory_made

    cdef int add(self, Entry* entry) except -1
    cdef int peek(self, Entry* entry) except -1
    cdef int pop(self) except -1
    cdef int push(self, Entry* entry) except -1
    cdef void sift_down(self, uint32_t at) noexcept
    cdef bint strike(self, uint32_t segment, uint32_t position) except -1
    cdef int enter(self, Run run) except -1
    cdef int ask(self, Run run) except -1
    cdef int finish_run(self, Run run) except -1
    cdef int write_run(self, Round* round, Run run) except -1

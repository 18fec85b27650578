from libc.stdint cimport uint8_t, uint64_t

from broker.store.files.async_io cimport Flight
from broker.store.files.io_thread cimport File, OpList, Round
from broker.store.files.operation cimport File, Op


cdef class DirectWrites:
    cdef public uint64_t files       # how many may be open for it; 0: no round is written so
    cdef readonly uint64_t rounds    # that were written so
    cdef int most                    # files of one round; 0: not asked yet
    cdef bint is_against             # the setting: every round is synced by a syncfs
    cdef Flight* flight
    cdef uint8_t* blocks             # what the flight writes
    cdef Round* round                # that is under way, or NULL

    cdef bint suits(self, Round* round) noexcept
    cdef bint begin(self, Round* round, int event_fd) noexcept
    cdef bint covers(self, OpList* syncs, OpList* writes) noexcept
    cdef bint has_memory(self) noexcept
    cdef int files_at_once(self, File* file) noexcept
    cdef int put(self, OpList* writes) noexcept
    cdef bint is_refused(self, int error) noexcept
    cdef Round* ended(self, bint* again) noexcept

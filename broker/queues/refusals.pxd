from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef enum:
    SLOTS = 6                    # seconds: five whole ones and the one at hand


cdef class Refusals:
    cdef int64_t seconds[SLOTS]
    cdef uint32_t counts[SLOTS]
    cdef readonly uint64_t total         # since the queue was declared or recovered
    cdef uint64_t bytes                  # of their bodies
    cdef readonly int64_t since          # the first of this spell, ms of our clock
    cdef readonly int64_t last_at        # the newest one
    cdef readonly uint64_t spell         # how many since then
    cdef dict publishers                 # id of a connection -> refused in this spell
    cdef bint is_unnamed                 # the newest one has no publisher yet

    cdef int add(self, uint64_t size) except -1
    cdef int name_publisher(self, connection) except -1

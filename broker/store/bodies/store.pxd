from libc.stdint cimport uint8_t, uint32_t, uint64_t

from broker.kernel.message cimport Message
from broker.store.bodies.blocks cimport BodyBlocks
from broker.store.bodies.body_index cimport BodyIndex
from broker.store.bodies.file cimport BodyFile
from broker.store.bodies.files cimport BodyFiles
from broker.store.commit.contracts cimport Dirty
from broker.store.commit.persister cimport Persister
from broker.store.files.io_thread cimport Round


cdef class BodyStore(Dirty):
    cdef readonly Persister persister
    cdef BodyBlocks blocks           # bodies in flight
    cdef readonly BodyIndex located  # the others
    cdef readonly str directory
    cdef readonly uint64_t incarnation
    cdef readonly object settings
    cdef readonly uint32_t embed_below
    cdef readonly BodyFiles files
    cdef readonly BodyFile current
    cdef list leaving                # files that are removed when they are not in flight
    cdef set reading                 # readers with a question or a read in flight
    cdef uint32_t next_file
    cdef readonly bint closed
    cdef bint deleted                # with its vhost: all files leave
    cdef readonly bint unsure        # references may be too many: no clean stop
    cdef readonly object recovery    # while starting
    cdef readonly object collector
    cdef readonly uint64_t shared
    cdef readonly uint64_t shared_bytes
    cdef readonly uint64_t written_bodies
    cdef readonly uint64_t written_bytes
    cdef readonly uint64_t cancelled
    cdef readonly uint64_t cancelled_bytes
    cdef readonly uint64_t dangling
    cdef readonly uint64_t references         # of records in queues
    cdef readonly uint64_t buffer_writes      # stretches of bodies written in one go
    cdef readonly uint64_t in_flight_hits     # readings of a body that was still in memory
    cdef readonly uint64_t in_flight_misses
    cdef readonly uint64_t cache_hits         # of those, in the page cache
    cdef readonly uint64_t cache_misses

    cdef bint count_recovered(self, const uint8_t* reference) except? True
    cdef bint count_kept(self, const uint8_t* reference) except? True
    cdef int share(self, Message* message) except -1
    cdef int release(self, const uint8_t* reference) except -1
    cdef int take(self, const uint8_t* reference, bint durable) except -1
    cdef int drop(self, const uint8_t* id) except -1
    cdef int note_changes(self) except -1
    cdef int freed(self, uint32_t file, uint32_t length) except -1
    cdef BodyFile file_for(self, Round* round, size_t size)
    cdef int seal(self, BodyFile file) except -1
    cdef int leave(self, BodyFile file) except -1

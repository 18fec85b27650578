from libc.stdint cimport int64_t, uint32_t, uint64_t

from broker.features.delayed.entry cimport Entry
from broker.features.delayed.leaving cimport Leaving, Refused
from broker.features.delayed.schedule cimport Schedule
from broker.kernel.contracts cimport Queue
from broker.kernel.message cimport Message, Place
from broker.kernel.turn cimport Turn
from broker.store.bodies.store cimport BodyStore
from broker.store.commit.persister cimport Persister
from broker.store.log.queue_store cimport QueueStore


cdef class Holding(Queue):
    cdef readonly str name               # the exchange's
    cdef readonly uint64_t incarnation
    cdef Turn turn
    cdef Persister persister
    cdef readonly QueueStore store
    cdef readonly Schedule schedule
    cdef object route
    cdef BodyStore bodies                # of the vhost
    cdef object later
    cdef object timer
    cdef int64_t timer_at                # what the timer waits for, ms of our clock
    cdef Entry last                      # the last one that was taken
    cdef list refused                    # Refused, in the order in which they were due
    cdef Py_ssize_t offer_at             # those before it were offered again in this pass
    cdef set full                        # queues that refused one: no later one overtakes it
    cdef bint is_again                   # the message at hand is one of them
    cdef uint32_t refused_max            # with this number of refusals no more are released
    cdef set takers                      # of the message that leaves, as in Refused
    cdef set waits                       # likewise
    cdef int given                       # likewise
    cdef Leaving leaving                 # None: none is on its way to very many queues
    cdef bint offering                   # a timer to offer those again is set
    cdef readonly bint deleted
    cdef public bint open                # whether it takes messages; it always gives them out
    cdef readonly uint64_t held          # messages taken since the start
    cdef readonly uint64_t released
    cdef readonly uint64_t unroutable    # of them, those that no queue took
    cdef readonly uint64_t cancelled
    cdef readonly uint64_t damaged

    cdef int arm(self, int64_t due) except -1
    cdef int release_due(self, list safe) except -1
    cdef int release(self, Message* message, Place* place, Refused refused, list safe) except -1
    cdef int conclude(self, int result, Place* place, Refused refused, Py_ssize_t at,
                      list safe) except -1
    cdef Refused tell_failure(self, Refused refused)
    cdef int go_on(self, list safe) except -1
    cdef int ask(self, Queue queue, Message* message) except -1
    cdef void end_leaving(self)
    cdef void end_pass(self)
    cdef int give(self, Message* message, Place* place) except -1
    cdef bint is_in_memory(self, uint32_t segment, uint32_t position) except -1
    cdef int settle_all(self, list places) except -1

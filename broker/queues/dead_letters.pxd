from libc.stdint cimport uint8_t, uint64_t

from broker.kernel.message cimport Message, Place
from broker.queues.ack_confirms cimport AckConfirms
from broker.queues.declared cimport DeclaredQueue
from broker.queues.dying cimport Dying
from broker.queues.unstored cimport Unstored
from broker.queues.wide_letter cimport WideLetter
from broker.store.commit.persister cimport Persister
from broker.store.log.contracts cimport MessageStore


cdef enum:
    REASON_COUNT = 4                     # of `dying.REASONS`
    PUT_OFF = 8                          # beside the answers of queues: not all have it yet


# By the reasons of `dying.pxd`.
cdef class DeathCounters:
    cdef uint64_t[REASON_COUNT] given_up   # without a dead-letter exchange
    cdef uint64_t[REASON_COUNT] lettered   # handed over to one
    cdef uint64_t[REASON_COUNT] unrouted   # there is one, but no queue behind it
    cdef uint64_t[REASON_COUNT] given_up_bytes
    cdef uint64_t[REASON_COUNT] lettered_bytes
    cdef uint64_t[REASON_COUNT] unrouted_bytes


cdef class DeadLetters:
    cdef AckConfirms confirms
    cdef Persister persister
    cdef object bounds                   # `broker.settings.bounds.Bounds`
    cdef DeathCounters deaths            # None until the first one dies
    cdef uint64_t lettered               # of all reasons
    cdef Dying dying                     # likewise
    cdef set takers                      # queues that have the oldest dead letter, if one refused
    cdef uint64_t place                  # of the dead letter at hand; 0: it was never stored
    cdef int buried_result               # of the queues that took it before
    cdef bint buries_again               # a timer will, as a full queue refused it
    cdef set waits                       # of one to very many, those that refused it; else None
    cdef WideLetter wide                 # the oldest dead letter, on its way to very many queues
    cdef Unstored unstored               # None until one waits
    cdef WideLetter passing              # the dead letter of their first, on its way to very many
    cdef bint gives_many                 # a dead letter to very many queues may be made ready

    cdef int give_up(self, int reason, uint64_t size) except -1
    cdef int add(self, Place* place, int reason) except -1
    cdef bint are_waiting(self) noexcept
    cdef bint has_unstored(self) noexcept
    cdef bint are_choked(self) noexcept
    cdef int bury(self, DeclaredQueue queue, MessageStore store) except -1
    cdef int bury_heads(self, DeclaredQueue queue, MessageStore store) except -1
    cdef int bury_unstored(self, DeclaredQueue queue, MessageStore store, Message* message,
                           int reason) except -1
    cdef int put_off(self, DeclaredQueue queue, Message* message, int reason) except -1
    cdef int bury_put_off(self, DeclaredQueue queue, MessageStore store) except -1
    cdef int pass_on(self, DeclaredQueue queue, MessageStore store) except -1
    cdef int drop_first(self) except -1
    cdef int bury_later(self, DeclaredQueue queue, double seconds) except -1
    cdef int bury_message(self, DeclaredQueue queue, MessageStore store, Message* message,
                          int reason, int* held) except -1
    cdef int go_nowhere(self, DeclaredQueue queue, int reason, uint64_t size, int* held) except -1
    cdef int went(self, DeclaredQueue queue, int reason, uint64_t size, tuple targets,
                  bytes exchange, bytes routing_key) except -1
    cdef int bury_wide(self, DeclaredQueue queue, int reason, Message* message,
                       int* held) except -1
    cdef int make_wide(self, DeclaredQueue queue, uint8_t flags, Message* letter, found,
                       bint shared) except -1
    cdef int all_have_it(self, DeclaredQueue queue, int reason, uint64_t size,
                         WideLetter wide) except -1
    cdef void end_wide(self)
    cdef int end(self) except -1
    cdef int tell(self, DeclaredQueue queue, int event, tuple targets, bytes exchange,
                  bytes routing_key) except -1
    cdef int offer(self, tuple targets, Message* letter, bint has_origin, int* held) except -1
    cdef void forget_takers(self) noexcept
    cdef DeathCounters counted(self)
    cdef void use(self, uint64_t* row) noexcept

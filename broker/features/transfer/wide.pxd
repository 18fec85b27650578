from libc.stdint cimport int64_t, uint8_t, uint32_t

from broker.kernel.contracts cimport Queue
from broker.kernel.message cimport Message
from broker.kernel.reached cimport Reached
from broker.queues.classic cimport ClassicQueue
from broker.store.bodies.wide_message cimport WideMessage
from broker.store.bodies.store cimport BodyStore


cdef class WideTransfer(WideMessage):
    cdef ClassicQueue source
    cdef int64_t timestamp               # of its publishing
    cdef uint8_t flags                   # of the message in its source
    cdef uint32_t returns                # how often it came back there
    cdef Py_ssize_t asked                # the first ones of its queues, which have room
    cdef bint needs_body                 # one of them takes no reference
    cdef bint has_begun                  # it is being given to them
    cdef bint is_given                   # to one at least
    cdef str refusal                     # why one did not take it, if one did not
    cdef Reached refused                 # those that did not
    cdef tuple all_of_them               # if it `is_kept`, and some did not

    cdef int ask_for(self, Message* letter, ClassicQueue source, found) except -1
    cdef bint ask(self) except -1
    cdef bint asks_for_room(self, Queue queue) except -1
    cdef int begin(self, Message* message, BodyStore bodies, uint32_t returns) except -1
    cdef bint go_further(self, bint has_origin) except -1
    cdef bint is_refused(self) except -1
    cdef int offer(self, Queue queue, bint confirm) except -1
    cdef tuple queues(self)

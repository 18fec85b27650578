# cython: language_level=3
"""What connects channels and queues with what keeps a history of messages: a flag for each vhost,
an object for each channel once the flag is on, and one for each queue whose events are kept."""

from libc.stdint cimport uint32_t, uint64_t


cdef class Recording:
    """What one publisher does is recorded."""

    cdef int record(self, Message* message, Exchange exchange, tuple targets,
                    int answer) except -1:
        """A message went to the queues `targets` (none: it was unroutable), which said `answer`
        together. NEEDS_SYNC where it is recorded: its confirm waits for the record, too."""
        raise NotImplementedError

    cdef int record_run(self, Message* messages, uint32_t count, Exchange exchange, tuple targets,
                        int answer) except -1:
        """The same of messages without headers that went there together."""
        raise NotImplementedError

    def keep(self, Exchange exchange, bytes name, bytes routing_key, bytes properties, bytes body,
             tuple targets, int answer) -> int:
        """The same of a message that comes over no channel; `name` is the exchange's."""
        raise NotImplementedError


cdef class Recorder:
    """Whether messages of a vhost are recorded: `on`, and `begin(user, connection)` gives the
    `Recording` of a publisher."""


NOT_RECORDING = Recorder()
"""For what belongs to no vhost."""


cdef class Observer:
    """Gets each event of the messages of one queue. Places are those of the queue's store; a
    place of 0 is that of a message which was never stored."""

    cdef int took(self, Queue queue, Message* message) except -1:
        """The queue is offered a message: NULL. It stored the message, behind all others."""
        raise NotImplementedError

    cdef int saw(self, int event, Place* place, who) except -1:
        """Something happened to a message, or to all that were ready (`place` is NULL). `who` is
        the consumer or getter that it went to, or None."""
        raise NotImplementedError

    cdef int passed_on(self, int event, uint64_t place, targets, bytes exchange,
                       bytes routing_key) except -1:
        """A message went from here to other queues."""
        raise NotImplementedError

# cython: language_level=3
"""The joint between a channel and what keeps a history of messages: a flag for each vhost, and an
object for each channel once the flag is on."""


cdef class Recording:
    """What one publisher does is recorded."""

    cdef int record(self, Message* message, Exchange exchange, tuple targets,
                    int answer) except -1:
        """A message went to the queues `targets` (none: it was unroutable), which said `answer`
        together. NEEDS_SYNC where it is recorded: its confirm waits for the record, too."""
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

# cython: language_level=3
"""How a queue takes a message of a transfer."""

from libc.stdint cimport uint32_t, uint64_t

from broker.kernel.contracts cimport HELD, REJECTED
from broker.kernel.message cimport Message
from broker.queues.classic cimport ClassicQueue
from broker.queues.limits cimport HAS_LENGTH_LIMIT
from broker.store.files.record cimport ORIGIN_BYTES, record_bytes
from broker.store.log.contracts cimport MessageStore
from broker.store.log.queue_store cimport QueueStore


cdef int receive_returned(ClassicQueue queue, Message* letter, uint32_t returns,
                          bint confirm) except -1:
    """Publishes a message that came back so often before."""
    cdef MessageStore part = queue.store.part_for(letter) if queue.store is not None else None
    cdef uint64_t before = part.end() if part is not None else 0
    cdef uint64_t after
    cdef int answer = queue.receive(letter, confirm)
    part = queue.store.part_for(letter) if queue.store is not None else None
    after = part.end() if part is not None else 0
    if answer != REJECTED and after != before and after & 0xFFFFFFFF:
        after -= record_bytes(letter) + (ORIGIN_BYTES if answer == HELD else 0)
        (<QueueStore> part).note_returns(<uint32_t> (after >> 32), <uint32_t> after, returns)
    return answer


cdef bint has_room(ClassicQueue queue, Message* message, bint may_serve) except -1:
    """Whether the queue would take the message. It is not asked by a publish, which may dead-letter
    what it refuses."""
    if not queue.features & HAS_LENGTH_LIMIT or not queue.limits.rejects:
        return True
    if queue.store is None:
        queue.open_store()
    if not queue.is_full(message):
        return True
    if may_serve and queue.is_served():
        queue.serve_consumers()
    return not queue.is_full(message)

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from broker.kernel.buffer cimport Buffer
from broker.kernel.turn cimport Turn
from broker.wire.channel cimport Channel, ChannelHost
from broker.wire.output cimport Output


cdef enum:
    AWAIT_HEADER = 0
    HANDSHAKE = 1            # from connection.start to connection.open-ok
    RUNNING = 2
    CLOSING = 3              # connection.close is sent; everything but close-ok is ignored
    CLOSED = 4

# Why frames are not taken apart; see `FrameParser.holding`.
cdef enum:
    PAUSED = 1               # nothing is, until `go_on`
    ALARMED = 2              # everything is up to the next publish, which is PAUSED
    COLLECTING = 4           # nothing is, while a collected body is written or read back
    YIELDING = 8             # nothing is until the next turn
    UNSENT = 16              # nothing is, while the peer takes nothing of what it was answered
    WORKING = 32             # nothing is, while long work is carried out (`long_work.py`)
    UNANSWERED = 64          # nothing is, while too many of its answers wait
    WAITING = PAUSED | COLLECTING | YIELDING | UNSENT | WORKING | UNANSWERED


cdef class FrameParser(ChannelHost):
    cdef readonly Output output
    cdef readonly object transport
    cdef Turn turn
    cdef readonly int phase
    cdef Buffer partial
    cdef list slots                      # channels by number; slot 0 is None
    cdef dict numbered_high              # those with a number above channel_max
    cdef readonly uint32_t channel_count     # how many both have
    cdef Channel publishing          # the channel whose content is unfinished in this chunk
    cdef readonly uint64_t recv_oct
    cdef readonly uint64_t recv_cnt
    cdef uint64_t unsent_max             # bytes that may wait for a peer that takes nothing
    cdef uint64_t unanswered_max         # answers that may wait, for the disk or for a message
    cdef uint64_t budget                 # bytes that may come before login, or after the end
    cdef readonly uint16_t channel_max
    cdef uint16_t current_channel
    cdef uint32_t current_method
    cdef uint32_t asked                  # methods that were not hot, of the chunk at hand
    cdef readonly Channel collecting  # whose body is waited for; None if none is
    cdef uint64_t began                  # when it began to take the chunk apart, monotonic ns
    cdef int holding                     # flags; zero is the fast path
    cdef bint floods                     # as `reading.pxd` says, if it publishes
    cdef public bint paused              # the transport is not read: memory is full
    cdef public bint blocked             # nor is it here: it wanted to publish during an alarm
    cdef public bint heard               # something came since the last heartbeat check
    cdef bint receives_freely            # the receive buffer of the kernel may grow
    cdef bint is_quiet                   # a heartbeat alone wakes no one: it is looked for
    cdef public object gauge
    cdef uint64_t* ended                 # what channels that are gone did; NULL while none is

    cdef void use(self, uint64_t* row) noexcept
    cdef int receive(self, const uint8_t* data, size_t length) except -1
    cpdef receive_freely(self)
    cdef int wait_no_more(self, int reason) except -1
    cdef int take_waiting(self) except -1
    cdef int holds_back(self, const uint8_t* frame, size_t length) except -1
    cdef Py_ssize_t frames(self, const uint8_t* data, size_t length) except -1
    cdef size_t publishes(self, const uint8_t* frame, size_t length, uint32_t size) except? 0
    cdef int frame(self, const uint8_t* frame, uint32_t size) except -1
    cdef int method(self, uint16_t number, const uint8_t* payload, uint32_t size) except -1
    cdef int connection_method(self, uint16_t number, uint32_t index, bytes payload) except -1
    cdef int cold_method(self, Channel channel, uint32_t index, bytes payload) except -1
    cdef int count_asked(self, uint64_t more) except -1
    cdef int give_way(self) except -1
    cdef void count_chunk(self, size_t length) noexcept
    cdef bint is_between_frames(self) noexcept
    cdef bint has_to_wait(self, size_t length) except -1
    cdef bint answers(self, size_t length) except -1
    cdef bint has_unacked(self) except -1
    cdef bint stays_unread(self) except -1
    cdef int await_credit(self) except -1
    cdef int keep(self) except -1
    cdef list open_channels(self)
    cdef Channel channel_at(self, uint16_t number)
    cdef int remove_channel(self, Channel channel) except -1
    # Hooks: what the frames ask of the connection, which defines all of them.
    cpdef label(self)
    cpdef on_protocol_header(self, bytes header)
    cpdef on_method(self, channel, int number, str name, dict arguments)
    cpdef fail_handshake(self, error, int class_id, int method_id)
    cpdef stop_reading(self)
    cpdef read_on(self)
    cpdef block(self)
    cpdef after_work(self, callback)
    cpdef end_channel(self, channel, then)
    cpdef end_channels(self, bint are_silent=*)
    cpdef await_close_ok(self, bint lost_sync)
    cpdef finish(self)
    cpdef drop(self)

from libc.stdint cimport int64_t, uint8_t, uint64_t

from broker.client.batch cimport Batch, Entry
from broker.client.channel cimport ChannelCore


cdef class Flight:
    cdef readonly ChannelCore source
    cdef readonly ChannelCore target
    cdef bytes exchange          # where to publish; None for each message's own
    cdef bytes routing_key
    cdef object rewrite
    cdef size_t plain_most       # longer properties are looked at
    cdef public bint checks_headers
    cdef public bint checks_plain
    cdef public bint rewrite_all
    cdef public bint with_names
    cdef public object repeat
    cdef public bint holds_acks  # the source sends no more than its prefetch meanwhile
    cdef public bint marks       # what is taken now may be at the target already
    cdef bint mandatory
    cdef public bint acks
    cdef public str on_refused
    cdef public str on_unfit
    cdef readonly str unfit_why
    cdef str fault               # of the message that is being appended
    cdef Batch sent              # as published; [0, head) are settled
    cdef Batch held              # refused ones, for `again`
    cdef Batch waiting           # deliveries that are not published yet
    cdef size_t head
    cdef size_t looked           # where in `sent` the next returned message is looked for
    cdef size_t left_out         # entries behind `head` that were not published
    cdef uint64_t settled        # publishes that were answered without a gap
    cdef uint64_t ack_tag        # the highest tag of a run of settled ones; 0 for none
    cdef readonly uint64_t acked     # all tags up to this one are acknowledged
    cdef readonly size_t strays  # tags that are not settled while higher ones may be
    cdef public int64_t ack_most     # tags above are acknowledged at the end; -1: no such bound
    cdef public uint64_t limit
    cdef readonly uint64_t taken
    cdef readonly uint64_t moved
    cdef readonly uint64_t moved_bytes
    cdef readonly uint64_t refused
    cdef readonly uint64_t unfit
    cdef readonly uint64_t dropped
    cdef readonly uint64_t parted_count
    cdef readonly uint64_t marked
    cdef readonly list refusals  # of Message: refused ones that were taken apart

    cdef int put(self, Batch batch, size_t first, size_t last) except -1
    cdef int send_acks(self) except -1
    cdef int publish(self, size_t start) except -1
    cdef int pass_left_out(self) except -1
    cdef int append_left_out(self, Entry* found, bint is_stray) except -1
    cdef bint fits(self, const uint8_t* listed, size_t length) except -1
    cdef bytes changed(self, Entry* found, const uint8_t* names, bint is_marked, bint again)
    cdef int refuse_unfit(self, Batch batch, size_t index, bint is_stray) except -1
    cdef size_t place(self, uint64_t number) noexcept
    cdef int append(self, Batch batch, size_t index, bint again) except -1
    cdef int done(self, Entry* entry) except -1
    cdef int settle(self, uint64_t tag, bint is_stray) except -1
    cdef int refuse(self, Entry* entry) except -1

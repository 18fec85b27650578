# cython: language_level=3
"""Load: publishes whose bodies carry the time, and what consumers read from them.

A body of 16 bytes or more begins with the monotonic clock in nanoseconds (64 bits), the number of
the run and that of the message (32 bits each), all big-endian; the rest is filler whose bytes
count up. Shorter bodies are filler only.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from broker.client.batch cimport Batch, Entry
from broker.client.channel cimport OVERHEAD, ChannelCore
from broker.client.measuring cimport Histogram, now_ns
from broker.kernel.buffer cimport Buffer, load32, load64, store32, store64

cdef enum:
    STAMP = 16


def filler(size_t size) -> bytes:
    """The body of that size before it is stamped."""
    return (bytes(range(256)) * (size // 256 + 1))[:size]


cdef class Stamper:
    """Publishes messages of one form on a channel. The frames are made once and copied."""

    cdef ChannelCore channel
    cdef Buffer frames
    cdef bytes exchange
    cdef bytes routing_key
    cdef bytes properties
    cdef bytearray body
    cdef size_t size
    cdef size_t body_at
    cdef bint mandatory
    cdef uint32_t run
    cdef readonly uint64_t count

    def __init__(self, ChannelCore channel, bytes exchange, bytes routing_key, bytes properties,
                 size_t size, *, uint32_t run=0, bint mandatory=False, bytes body=None):
        """`body` replaces the filler; its length is then the size."""
        self.channel = channel
        self.exchange = exchange
        self.routing_key = routing_key
        self.properties = properties
        self.mandatory = mandatory
        self.run = run
        self.body = bytearray(filler(size) if body is None else body)
        self.size = len(self.body)
        self.frames = Buffer()
        if self.size <= channel.link.frame_max - OVERHEAD:
            self.prepare()

    def prepare(self):
        """Takes the frames of one message, as the channel encodes them, for a template."""
        cdef Buffer out = self.channel.link.out
        cdef size_t before = out.length
        unconfirmed, self.channel.unconfirmed = self.channel.unconfirmed, None
        try:
            self.channel.publish(self.exchange, self.routing_key, self.properties, self.body,
                                 self.mandatory)
        finally:
            self.channel.unconfirmed = unconfirmed
        self.frames.add(out.data + before, out.length - before)
        self.body_at = self.frames.length - 1 - self.size
        out.length = before

    def publish(self, size_t count):
        """Publishes `count` messages. Raises the error that closed the channel."""
        cdef Buffer out = self.channel.link.out
        cdef uint8_t* p
        cdef int64_t now = now_ns()
        self.channel.check()
        for _ in range(count):
            self.count += 1
            if self.frames.length:
                if self.channel.unconfirmed is not None:
                    self.channel.unconfirmed.publish()
                p = out.room(self.frames.length)
                memcpy(p, self.frames.data, self.frames.length)
                out.length += self.frames.length
                if self.size >= STAMP:
                    self.stamp(p + self.body_at, now)
            else:
                self.stamp(<uint8_t*> <char*> self.body, now)
                self.channel.publish(self.exchange, self.routing_key, self.properties, self.body,
                                     self.mandatory)

    cdef void stamp(self, uint8_t* p, int64_t now) noexcept:
        store64(p, <uint64_t> now)
        store32(p + 8, self.run)
        store32(p + 12, <uint32_t> self.count)


cdef class StampReader:
    """Reads deliveries: counts them, takes their latency, looks at their bodies, acknowledges."""

    cdef Histogram histogram
    cdef uint32_t run
    cdef size_t ack_every
    cdef bint verify
    cdef readonly uint64_t count
    cdef readonly uint64_t body_bytes
    cdef readonly uint64_t redelivered
    cdef readonly uint64_t wrong
    cdef readonly size_t unacked
    cdef readonly uint64_t last_tag

    def __init__(self, Histogram histogram=None, *, uint32_t run=0, size_t ack_every=0,
                 bint verify=False):
        """`ack_every`: messages between acks, 0 for consumers without acks."""
        self.histogram = histogram
        self.run = run
        self.ack_every = ack_every
        self.verify = verify

    def read(self, ChannelCore channel, Batch batch):
        """Takes all whole messages of a batch."""
        cdef Entry* entry
        cdef const uint8_t* p
        cdef size_t index
        cdef int64_t now = now_ns()
        for index in range(batch.count):
            entry = &batch.entries[index]
            p = batch.body_of(index)
            self.count += 1
            self.body_bytes += entry.body_length
            self.redelivered += entry.redelivered
            if entry.body_length >= STAMP and load32(p + 8) == self.run:
                if self.histogram is not None:
                    self.histogram.add(now - <int64_t> load64(p))
            if self.verify and not is_filler(p, entry.body_length):
                self.wrong += 1
            if self.ack_every:
                self.unacked += 1
                self.last_tag = entry.tag
                if self.unacked >= self.ack_every:
                    channel.settle(80, entry.tag, self.ack_every > 1)
                    self.unacked = 0

    def flush(self, ChannelCore channel):
        """Acknowledges what is left of a group."""
        if self.unacked:
            channel.settle(80, self.last_tag, True)
            self.unacked = 0


cdef bint is_filler(const uint8_t* p, size_t length) noexcept:
    cdef size_t index
    for index in range(STAMP if length >= STAMP else 0, length):
        if p[index] != <uint8_t> index:
            return False
    return True

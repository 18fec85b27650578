# cython: language_level=3
"""Messages under way from a consumer to a channel of another connection: what a shovel does.

Deliveries are published in their order, as bytes; what the target confirms is acknowledged at the
source. A copy of each message stays here until then, so that one which the target refuses can be
published again without going back to its queue. No Python object is made for a message unless a
header has to be added to it.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp

from broker.client.batch cimport Batch, Entry
from broker.client.channel cimport ChannelCore
from broker.client.unconfirmed cimport Unconfirmed

cdef enum:
    ACK = 80
    # Bits of `Entry.code`: why a message was refused, that its tag is acknowledged alone, and that
    # it was not published.
    NACKED = 1
    RETURNED = 2
    STRAY = 4
    LEFT_OUT = 8


cdef class Flight:
    """One flight, for one channel at each end. `limit`: messages that are taken at most, 0 for all.
    `acks`: whether the source waits for acknowledgements.

    `on_refused` is `hold`, `drop` or `apart`: a message that the target refuses is kept for
    `again`, it is acknowledged and counted, or it waits in `refusals` for `parted`.
    """

    def __init__(self, ChannelCore source, ChannelCore target, *, bytes exchange=None,
                 bytes routing_key=None, rewrite=None, bint mandatory=False):
        """`rewrite(properties, is_marked)` gives the properties to publish, or None for a message
        that is left out: it is acknowledged in its turn. It is called for every message where
        `rewrite_all` is set, else for those that may be doubles."""
        self.source = source
        self.target = target
        self.exchange = exchange
        self.routing_key = routing_key
        self.rewrite = rewrite
        self.mandatory = mandatory
        self.on_refused = "hold"
        self.acks = True
        self.ack_most = -1
        self.sent = Batch()
        self.held = Batch()
        self.waiting = Batch()
        self.refusals = []

    # What is under way.

    @property
    def bytes(self) -> int:
        """Bytes of the messages that are kept here."""
        return (self.sent.bytes.length + self.held.bytes.length + self.waiting.bytes.length)

    @property
    def count(self) -> int:
        """Messages that were delivered and are not settled."""
        return (self.sent.count - self.head + self.held.count + self.waiting.count
                + len(self.refusals))

    @property
    def held_count(self) -> int:
        """Refused messages that wait for `again`."""
        return self.held.count

    @property
    def waiting_count(self) -> int:
        """Deliveries that wait for `go`."""
        return self.waiting.count

    @property
    def is_over(self) -> bool:
        """Whether as many as the limit says were taken and settled."""
        return self.limit != 0 and self.taken >= self.limit and self.count == 0

    # Publishing.

    def take(self, Batch batch, bint go):
        """Takes the messages of a batch; they are published now, or wait for `go`. What is beyond
        the limit is left alone. Raises the error that closed a channel."""
        cdef size_t last = batch.count
        cdef size_t index
        if self.limit and self.taken + last > self.limit:
            last = self.limit - self.taken
        if self.marks:
            for index in range(last):
                batch.entries[index].redelivered = True
        if go and not self.waiting.count:
            self.put(batch, 0, last)
        else:
            for index in range(last):
                copy(self.waiting, batch, index)
        self.taken += last

    def go(self):
        """Publishes what waits."""
        if self.waiting.count:
            self.put(self.waiting, 0, self.waiting.count)
            self.waiting.clear()

    def again(self):
        """Publishes once more what was refused, marked as a possible double."""
        cdef size_t start = self.sent.count
        cdef size_t index
        for index in range(self.held.count):
            self.append(self.held, index, True)
        self.held.clear()
        self.publish(start)

    cdef int publish(self, size_t start) except -1:
        """Publishes what was appended from there on, but what is left out."""
        cdef size_t index
        if self.left_out:
            for index in range(start, self.sent.count):
                if self.sent.entries[index].code & LEFT_OUT:
                    self.target.republish(self.sent, start, index, None, None, self.mandatory)
                    start = index + 1
        self.target.republish(self.sent, start, self.sent.count, None, None, self.mandatory)
        return 0

    cdef int put(self, Batch batch, size_t first, size_t last) except -1:
        cdef size_t start = self.sent.count
        cdef size_t index
        if first == last:
            return 0
        for index in range(first, last):
            self.append(batch, index, False)
        self.publish(start)
        self.pass_left_out()
        if self.target.unconfirmed is None:
            # Nothing is answered: it is done when it is written.
            for index in range(self.head, self.sent.count):
                if self.sent.entries[index].code & LEFT_OUT:
                    self.settle(self.sent.entries[index].tag, False)
                else:
                    self.done(&self.sent.entries[index])
            self.sent.clear()
            self.head = self.left_out = 0
        return 0

    cdef int pass_left_out(self) except -1:
        """Settles what was left out and stands next."""
        while (self.left_out and self.head < self.sent.count
                and self.sent.entries[self.head].code & LEFT_OUT):
            self.settle(self.sent.entries[self.head].tag, False)
            self.head += 1
            self.left_out -= 1
        if self.head == self.sent.count:
            self.flush_acks()
            self.sent.clear()
            self.head = self.looked = 0
        return 0

    cdef int append(self, Batch batch, size_t index, bint again) except -1:
        """Puts a message behind those that were sent, as it is to be published."""
        cdef Entry* found = &batch.entries[index]
        cdef const uint8_t* at = batch.bytes.data + found.start
        cdef const uint8_t* names = at
        cdef Entry* entry
        cdef bytes listed = None
        cdef bint is_marked = found.redelivered or again
        at += found.exchange_length + found.key_length
        if again and self.repeat is not None:
            listed = self.repeat((<char*> at)[:found.properties_length])
        elif self.with_names:
            listed = self.rewrite((<char*> at)[:found.properties_length], is_marked,
                                  (<char*> names)[:found.exchange_length],
                                  (<char*> names)[found.exchange_length:
                                                  found.exchange_length + found.key_length])
        elif is_marked or self.rewrite_all:
            listed = self.rewrite((<char*> at)[:found.properties_length], is_marked)
            if listed is None and not again:
                self.append_left_out(found)
                return 0
        self.marked += is_marked
        entry = self.sent.begin()
        entry.tag = found.tag
        entry.redelivered = found.redelivered
        entry.code = STRAY if again else 0
        if self.exchange is not None and not again:
            entry.exchange_length = <uint8_t> len(self.exchange)
            self.sent.bytes.add(<char*> self.exchange, len(self.exchange))
        else:
            entry.exchange_length = found.exchange_length
            self.sent.bytes.add(names, found.exchange_length)
        if self.routing_key is not None and not again:
            entry.key_length = <uint8_t> len(self.routing_key)
            self.sent.bytes.add(<char*> self.routing_key, len(self.routing_key))
        else:
            entry.key_length = found.key_length
            self.sent.bytes.add(names + found.exchange_length, found.key_length)
        if listed is not None:
            self.sent.properties(<const uint8_t*> <char*> listed, <unsigned int> len(listed),
                                 found.body_length)
        else:
            self.sent.properties(at, found.properties_length, found.body_length)
        if found.body_length:
            self.sent.body(at + found.properties_length, found.body_length)
        return 0

    cdef int append_left_out(self, Entry* found) except -1:
        """Puts a tag behind those that were sent, without a message."""
        cdef Entry* entry = self.sent.begin()
        entry.tag = found.tag
        entry.redelivered = found.redelivered
        entry.code = LEFT_OUT
        entry.exchange_length = entry.key_length = 0
        self.sent.properties(NULL, 0, 0)
        self.left_out += 1
        return 0

    # What the target answers.

    def nacked(self, list numbers):
        """The target has refused the publishes of these sequence numbers."""
        cdef uint64_t number
        for number in numbers:
            self.sent.entries[self.place(number)].code |= NACKED

    cdef size_t place(self, uint64_t number) noexcept:
        """Where in `sent` the publish of this sequence number is."""
        cdef size_t index = self.head
        cdef uint64_t ahead = number - 1 - self.settled
        if not self.left_out:
            return index + ahead
        while True:
            if not self.sent.entries[index].code & LEFT_OUT:
                if not ahead:
                    return index
                ahead -= 1
            index += 1

    def returned(self, message) -> bool:
        """The target has sent a message back; its confirm follows. Returns come in the order of
        the publishes, so that each is looked for behind the last one. Says whether it was found."""
        cdef bytes names = message.exchange + message.routing_key
        cdef bytes listed = message.properties
        cdef bytes body = message.body
        cdef Entry* entry
        cdef const uint8_t* at
        cdef size_t index
        if self.looked < self.head:
            self.looked = self.head
        for index in range(self.looked, self.sent.count):
            entry = &self.sent.entries[index]
            at = self.sent.bytes.data + entry.start
            if (not entry.code & (RETURNED | LEFT_OUT) and entry.body_length == <size_t> len(body)
                    and entry.properties_length == <size_t> len(listed)
                    and entry.exchange_length == <size_t> len(message.exchange)
                    and entry.exchange_length + entry.key_length == len(names)
                    and memcmp(at, <char*> names, len(names)) == 0
                    and memcmp(at + len(names), <char*> listed, len(listed)) == 0
                    and memcmp(at + len(names) + len(listed), <char*> body, len(body)) == 0):
                entry.code |= RETURNED
                self.looked = index + 1
                return True
        return False

    def collect(self):
        """Settles what the target has answered: confirmed messages are acknowledged at the source,
        refused ones treated as was asked for. Raises the error that closed the source's channel."""
        cdef Unconfirmed unconfirmed = self.target.unconfirmed
        cdef uint64_t answered = unconfirmed.base - 1
        cdef Entry* entry
        while self.settled < answered:
            entry = &self.sent.entries[self.head]
            if entry.code & (NACKED | RETURNED):
                self.refuse(entry)
            else:
                self.done(entry)
            self.head += 1
            self.settled += 1
            self.pass_left_out()
        self.flush_acks()
        if self.head == self.sent.count or self.head > self.sent.count // 2:
            self.sent.drop_first(self.head)
            self.looked = self.looked - self.head if self.looked > self.head else 0
            self.head = 0

    cdef int done(self, Entry* entry) except -1:
        """One message has arrived."""
        self.moved += 1
        self.moved_bytes += entry.body_length
        return self.settle(entry.tag, entry.code & STRAY != 0)

    cdef int settle(self, uint64_t tag, bint is_stray) except -1:
        """Acknowledges a tag: with those below it where all of them are settled."""
        cdef bint is_early = self.ack_most < 0 or <int64_t> tag <= self.ack_most
        if not self.acks:
            return 0
        if self.strays:
            self.strays -= is_stray
            if is_early:
                self.source.settle(ACK, tag, 0)
        elif is_early:
            self.ack_tag = tag
        return 0

    cdef int refuse(self, Entry* entry) except -1:
        """One message was refused."""
        cdef bint was_stray = entry.code & STRAY != 0
        self.refused += 1
        if self.on_refused == "drop":
            self.dropped += 1
            return self.settle(entry.tag, was_stray)
        # From now on tags are acknowledged one by one.
        self.send_acks()
        self.strays += not was_stray
        if self.on_refused == "hold":
            copy(self.held, self.sent, self.head)
        else:
            self.refusals.append(self.sent.message(self.head))
        return 0

    def parted(self, message, bint by_source):
        """A message of `refusals` is dealt with. `by_source`: the source is to dead-letter it, else
        it is acknowledged."""
        self.refusals.remove(message)
        self.strays -= 1
        self.parted_count += 1
        if by_source:
            self.source.nack(message.delivery_tag, False, False)
        else:
            self.source.ack(message.delivery_tag, False)

    def flush_acks(self):
        """Acknowledges at the source what may be, unless `holds_acks`."""
        if not self.holds_acks:
            self.send_acks()

    cdef int send_acks(self) except -1:
        if self.ack_tag:
            self.source.settle(ACK, self.ack_tag, 1)
            self.acked = self.ack_tag
            self.ack_tag = 0
        return 0

    def ack_all(self):
        """Acknowledges everything that was delivered; for the end, when all of it is settled."""
        self.source.settle(ACK, 0, 1)


cdef int copy(Batch to, Batch batch, size_t index) except -1:
    """Adds a message of one batch to another one."""
    cdef Entry* found = &batch.entries[index]
    cdef Entry* entry = to.begin()
    cdef const uint8_t* at = batch.bytes.data + found.start
    cdef size_t names = found.exchange_length + found.key_length
    entry.tag = found.tag
    entry.redelivered = found.redelivered
    entry.code = found.code & STRAY
    entry.exchange_length = found.exchange_length
    entry.key_length = found.key_length
    to.bytes.add(at, names)
    to.properties(at + names, found.properties_length, found.body_length)
    if found.body_length:
        to.body(at + names + found.properties_length, found.body_length)
    return 0

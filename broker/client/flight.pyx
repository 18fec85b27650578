# cython: language_level=3
"""Messages under way from a consumer to a channel of another connection: what a shovel does.

Deliveries are published in their order, as bytes; what the target confirms is acknowledged at the
source. A copy of each message stays here until then, so that one which the target refuses can be
published again without going back to its queue. No Python object is made for a message unless its
properties have to be changed.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from broker.client.batch cimport Batch, Entry
from broker.client.channel cimport ChannelCore, properties_most
from broker.client.unconfirmed cimport Unconfirmed
from broker.fields.tables cimport walk_properties
from broker.kernel.buffer cimport load16
from broker.schema.errors import FrameError
from broker.settings.bounds import PUBLISHED_VALUES_MAX

cdef enum:
    ACK = 80
    # Flags of properties.
    HEADERS = 1 << 13
    USER_ID = 1 << 4
    # Bits of `Entry.code`: why a message was refused, that its tag is acknowledged alone, that it
    # was not published, and that it is held as it came, because it could not be published.
    NACKED = 1
    RETURNED = 2
    STRAY = 4
    LEFT_OUT = 8
    RAW = 16


cdef class Flight:
    """One flight, for one channel at each end. `limit`: messages that are taken at most, 0 for all.
    `acks`: whether the source waits for acknowledgements.

    `on_refused` is `hold`, `drop` or `apart`: a message that the target refuses is kept for
    `again`, it is acknowledged and counted, or it waits in `refusals` for `parted`.

    `on_unfit` is for a message that cannot be published at all, as its properties are longer than a
    frame of the target or `rewrite` raises ValueError; it counts as refused. It is one of the same,
    or `reject`: the source is to dead-letter it or drop it. `unfit` counts them, `unfit_why` says
    what the last one's fault was. `checks_headers`: the target closes the connection for headers
    that this broker does not take from a client, so that such messages count among them; with
    `checks_plain` so do those that go as they are: their source may have been any broker.
    """

    def __init__(self, ChannelCore source, ChannelCore target, *, bytes exchange=None,
                 bytes routing_key=None, rewrite=None, bint mandatory=False):
        """`rewrite(properties, is_marked)` gives the properties to publish, or None for a message
        that is left out: it is acknowledged in its turn. It is called for every message where
        `rewrite_all` is set, else for those that may be doubles and those with a user-id, which a
        broker takes from that user only."""
        self.source = source
        self.target = target
        self.exchange = exchange
        self.routing_key = routing_key
        self.rewrite = rewrite
        # Each value has a byte at least.
        self.plain_most = min(properties_most(target.link), PUBLISHED_VALUES_MAX)
        self.mandatory = mandatory
        self.on_refused = self.on_unfit = "hold"
        self.unfit_why = ""
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
        # What cannot be published is held once more.
        cdef Batch held = self.held
        self.held = Batch()
        for index in range(held.count):
            self.append(held, index, True)
        self.publish(start)
        self.pass_left_out()

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
        cdef Entry* entry
        if first == last:
            return 0
        for index in range(first, last):
            self.append(batch, index, False)
        self.publish(start)
        self.pass_left_out()
        if self.target.unconfirmed is None:
            # Nothing is answered: it is done when it is written.
            for index in range(self.head, self.sent.count):
                entry = &self.sent.entries[index]
                if entry.code & LEFT_OUT:
                    self.settle(entry.tag, entry.code & STRAY != 0)
                else:
                    self.done(entry)
            self.sent.clear()
            self.head = self.left_out = 0
        return 0

    cdef int pass_left_out(self) except -1:
        """Settles what was left out and stands next."""
        cdef Entry* entry
        while (self.left_out and self.head < self.sent.count
                and self.sent.entries[self.head].code & LEFT_OUT):
            entry = &self.sent.entries[self.head]
            self.settle(entry.tag, entry.code & STRAY != 0)
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
        cdef const uint8_t* properties
        cdef Entry* entry
        cdef bytes listed
        cdef bint is_stray = again
        cdef bint is_marked
        cdef size_t length = found.properties_length
        if found.code & RAW:
            again = False
        is_marked = found.redelivered or again
        at += found.exchange_length + found.key_length
        properties = at
        if is_marked or self.rewrite_all or load16(at) & USER_ID:
            listed = self.changed(found, names, is_marked, again)
            if self.fault is not None:
                return self.refuse_unfit(batch, index, is_stray)
            if listed is None:
                return self.append_left_out(found, is_stray)
            properties, length = <const uint8_t*> <char*> listed, len(listed)
        if (properties != at or length > self.plain_most
                or self.checks_plain and load16(at) & HEADERS) and not self.fits(
                    properties, length):
            return self.refuse_unfit(batch, index, is_stray)
        self.marked += is_marked
        entry = self.sent.begin()
        entry.tag = found.tag
        entry.redelivered = found.redelivered
        entry.code = STRAY if is_stray else 0
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
        self.sent.properties(properties, <uint32_t> length, found.body_length)
        if found.body_length:
            self.sent.body(at + found.properties_length, found.body_length)
        return 0

    cdef bytes changed(self, Entry* found, const uint8_t* names, bint is_marked, bint again):
        """The properties to publish; None for a message that is left out, and for one that cannot
        be published, of which `fault` says why."""
        cdef const uint8_t* key = names + found.exchange_length
        cdef bytes listed = (<char*> key + found.key_length)[:found.properties_length]
        try:
            if again and self.repeat is not None:
                return self.repeat(listed)
            if self.with_names:
                return self.rewrite(listed, is_marked, (<char*> names)[:found.exchange_length],
                                    (<char*> key)[:found.key_length])
            return self.rewrite(listed, is_marked)
        except ValueError as error:
            self.fault = str(error)
        return None

    cdef bint fits(self, const uint8_t* listed, size_t length) except -1:
        """Whether the target takes these properties; else `fault` says why not."""
        if length > properties_most(self.target.link):
            self.fault = (f"its properties of {length} bytes are longer than a frame of "
                          f"{self.target.link.frame_max} bytes takes")
            return False
        if self.checks_headers:
            try:
                walk_properties(listed, <uint32_t> length)
            except FrameError as error:
                self.fault = f"its properties: {error}"
                return False
        return True

    cdef int refuse_unfit(self, Batch batch, size_t index, bint is_stray) except -1:
        """One message cannot be published, because of `fault`."""
        cdef Entry* found = &batch.entries[index]
        self.unfit_why, self.fault = self.fault, None
        self.unfit += 1
        self.refused += 1
        if self.on_unfit == "drop":
            self.dropped += 1
            return self.append_left_out(found, is_stray)
        # From now on tags are acknowledged one by one, as with `refuse`.
        self.send_acks()
        if self.on_unfit == "reject":
            self.dropped += 1
            self.strays -= is_stray
            if self.acks:
                self.source.nack(found.tag, False, False)
            return 0
        self.strays += not is_stray
        if self.on_unfit == "hold":
            copy(self.held, batch, index)
            if not is_stray:
                self.held.entries[self.held.count - 1].code |= RAW
        else:
            self.refusals.append(batch.message(index))
        return 0

    cdef int append_left_out(self, Entry* found, bint is_stray) except -1:
        """Puts a tag behind those that were sent, without a message."""
        cdef Entry* entry = self.sent.begin()
        entry.tag = found.tag
        entry.redelivered = found.redelivered
        entry.code = LEFT_OUT | (STRAY if is_stray else 0)
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
    entry.code = found.code & (STRAY | RAW)
    entry.exchange_length = found.exchange_length
    entry.key_length = found.key_length
    to.bytes.add(at, names)
    to.properties(at + names, found.properties_length, found.body_length)
    if found.body_length:
        to.body(at + names + found.properties_length, found.body_length)
    return 0

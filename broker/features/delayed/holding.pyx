# cython: language_level=3
"""What holds an exchange's messages back until they are due.

To a publisher it is a queue: a message that waits is stored in a log of segments like any
queue's, with its due time in place of the time of publishing, and entered in the timing index. At
its due time it is routed and given to the queues it reaches; here it is settled once those have it
on disk.
"""

import functools
import logging

from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from broker.features.delayed.browser import Browser, START
from broker.features.delayed.delay cimport delay_of, negated
from broker.features.delayed.delay import delay_in
from broker.features.delayed.entry cimport Entry
from broker.features.delayed.leaving cimport Leaving, Refused
from broker.features.delayed.restart cimport is_live
from broker.features.delayed.restart import restore
from broker.features.delayed.run cimport LATER, NONE
from broker.features.delayed.schedule cimport Schedule
from broker.kernel cimport clock
from broker.kernel.contracts cimport NEEDS_SYNC, Queue, REJECTED, STORED
from broker.kernel.large_body cimport body_of, set_body
from broker.kernel.message cimport (
    BODY_IS_REFERENCE, EXPIRES, Message, PERSISTENT, Place, set_parts,
)
from broker.kernel.reached cimport is_wide
from broker.kernel.turn cimport Turn
from broker.queues.wide_letter cimport WideLetter
from broker.schema.errors import PreconditionFailed
from broker.settings.bounds import DEFAULTS
from broker.store.bodies.store cimport BodyStore
from broker.store.commit.persister cimport Persister
from broker.store.files import disk
from broker.store.files.record cimport record_bytes
from broker.store.log.contracts cimport FOUND, WAIT
from broker.store.log.queue_store cimport QueueStore
from broker.store.log.recovery import recover
from broker.store.log.segments cimport QueueDirectory, Segments

log = logging.getLogger("leveret.delayed")

cdef enum:
    TURN_RELEASES = 128          # messages routed in one turn of the loop
    # A timer is never set further ahead: one that is taken back stays in the wheel until then.
    TIMER_MAX_MS = 10000

# How long a message waits before it is offered to a full queue again.
cdef double OFFER_AGAIN_S = 0.25


cdef class Holding(Queue):
    """The delayed messages of one exchange. `parent` is the directory of such logs, `index` that of
    their timing indexes.

    `route(routing_key, properties)` gives the queues that a message reaches when it is due, and the
    properties it is published with then (None: the same). A large body that goes to several lies
    in `bodies` from then on.
    """

    def __init__(self, Turn turn, Persister persister, later, str parent, str index, str name,
                 uint64_t incarnation, bint durable, route, BodyStore bodies, bounds=DEFAULTS):
        self.turn = turn
        self.persister = persister
        self.later = later
        self.name = name
        self.incarnation = incarnation
        self.durable = durable
        self.route = route
        self.bodies = bodies
        self.store = QueueStore(
            QueueDirectory(persister, parent, incarnation), durable, self.wake)
        self.schedule = Schedule(
            persister, f"{index}/{incarnation:016x}", incarnation, durable, self.wake,
            cancelled_max=bounds.delayed_cancelled)
        self.refused_max = bounds.refused_backlog
        self.open = True
        self.refused = []
        self.full = set()
        memset(&self.last, 0, sizeof(Entry))

    # -- what others see ---------------------------------------------------------------------------

    @property
    def messages(self) -> int:
        """Messages that wait."""
        return self.store.ready

    @property
    def messages_leaving(self) -> int:
        """Messages that were due and are not settled yet."""
        return self.store.total - self.store.ready

    @property
    def message_bytes(self) -> int:
        return self.store.total_bytes

    @property
    def disk_bytes(self) -> int:
        return self.store.disk_bytes

    def counters(self) -> dict:
        return {
            "delayed": self.held,
            "released": self.released,
            "unroutable": self.unroutable,
            "cancelled": self.cancelled,
        }

    def facts(self) -> dict:
        """What is shown of it."""
        return {
            "messages_delayed": self.messages,
            "messages_leaving": self.messages_leaving,
            "message_bytes_delayed": self.store.ready_bytes,
            "delayed_disk_bytes": self.store.disk_bytes,
        }

    # -- in ----------------------------------------------------------------------------------------

    def takes(self, headers) -> bool:
        """Whether a message with these headers is held back."""
        return self.open and delay_in(headers) > 0

    cdef int publish(self, Message* message, bint confirm) except -1:
        cdef Message held = message[0]
        cdef Entry entry
        cdef bytes properties
        cdef int64_t delay = delay_of(message.properties, message.properties_length)
        if delay > 0:
            properties = negated(message, delay)
            held.properties = <const uint8_t*> <char*> properties
            held.properties_length = <uint32_t> len(properties)
        else:
            delay = 0
        # Due times never run backwards behind what was taken, so that a place tells whether its
        # message still waits (`is_waiting`).
        held.timestamp = message.timestamp
        if delay > INT64_MAX - 1 - held.timestamp:
            held.timestamp = INT64_MAX
        elif delay:
            # Times are cut to whole ms: one more, so that it is never early.
            held.timestamp += delay + 1
        if held.timestamp < self.last.due:
            held.timestamp = self.last.due
        held.flags = message.flags & (PERSISTENT | EXPIRES)
        self.store.append(&held)
        entry.due = held.timestamp
        entry.length = record_bytes(&held)
        entry.segment = self.store.segments.active.number
        entry.position = self.store.segments.active.length - entry.length
        entry.body_length = held.body_length
        entry.check = 0
        self.schedule.add(&entry)
        self.held += 1
        if entry.due < self.timer_at or self.timer is None:
            self.arm(entry.due)
        if self.durable and message.flags & PERSISTENT:
            return NEEDS_SYNC
        return STORED

    cdef int arm(self, int64_t due) except -1:
        """Sets the one timer for the earliest due time."""
        cdef int64_t delay
        clock.refresh()
        delay = due - clock.now_ms
        if delay > TIMER_MAX_MS:
            delay = TIMER_MAX_MS
        if self.timer is not None:
            if self.timer_at <= clock.now_ms + delay:
                return 0
            self.timer.cancel()
        self.timer_at = clock.now_ms + delay
        self.timer = self.later(delay / 1000 if delay > 0 else 0, self.due)
        return 0

    def due(self):
        """The timer of `arm`."""
        self.timer = None
        self.wake()

    def wake(self):
        if not self.pending and not self.deleted:
            self.turn.touch_queue(self)

    # -- out ---------------------------------------------------------------------------------------

    cdef int work(self) except -1:
        """Releases what is due; many go on in the next turn."""
        cdef list safe = []
        if self.deleted:
            return 0
        clock.refresh()
        try:
            if self.leaving is not None:
                self.go_on(safe)
            if self.leaving is None:
                self.release_due(safe)
        except Exception:
            self.offer_later()
            raise
        finally:
            if safe:
                self.persister.after_round(functools.partial(self.taken, safe))
        return 0

    cdef int release_due(self, list safe) except -1:
        """Takes what is due from the index and lets it go."""
        cdef Entry entry
        cdef Place place
        cdef Message message
        cdef int found
        cdef uint32_t count = 0
        while len(self.refused) < self.refused_max:
            found = self.schedule.peek(&entry)
            if found == NONE or found == LATER:
                break
            if entry.due > clock.now_ms:
                self.arm(entry.due)
                break
            if count == TURN_RELEASES:
                self.wake()
                break
            count += 1
            if self.schedule.cancelled.take(entry.segment, entry.position):
                self.schedule.pop()
                continue
            if not is_live(self.store, entry.segment, entry.position):
                self.schedule.pop()
                continue
            place.segment = entry.segment
            place.position = entry.position
            place.length = entry.length
            place.body_length = entry.body_length
            place.redelivered = 0
            found = self.store.read(&place, &message)
            if found == WAIT:
                break
            self.last = entry
            self.schedule.pop()
            self.store.pick(&place)
            if found != FOUND:
                # The log says where; recovery looks at the segment again.
                self.damaged += 1
                self.store.settle(&place)
                continue
            self.released += 1
            self.release(&message, &place, None, safe)
            if self.leaving is not None:
                self.wake()
                break
        return 0

    cdef int release(self, Message* message, Place* place, Refused refused, list safe) except -1:
        """Routes a message that is due and gives it to the queues that do not have it. If it cannot
        leave it joins those that are offered again, `refused` if it was one. A place whose targets
        are to be synced first goes to `safe`."""
        cdef int result
        # One that is offered again keeps its place among the refused ones.
        cdef Py_ssize_t at = len(self.refused) if refused is None else self.offer_at
        self.takers = self.waits = None
        self.given = STORED
        self.is_again = refused is not None
        if refused is not None:
            self.takers = refused.takers
            self.waits = refused.waits
            self.given = refused.given
        try:
            result = self.give(message, place)
        except Exception:
            refused = self.tell_failure(refused)
            result = REJECTED
        if self.leaving is not None:
            self.leaving.place = place[0]
            self.leaving.refused = refused
            self.leaving.at = at
            return 0
        return self.conclude(result, place, refused, at, safe)

    cdef Refused tell_failure(self, Refused refused):
        """An error, which is logged once for a message, keeps it from leaving."""
        if refused is None:
            refused = Refused()
        if not refused.is_told:
            refused.is_told = True
            log.exception("a delayed message of exchange '%s' cannot leave; it is tried again",
                          self.name)
        return refused

    cdef int go_on(self, list safe) except -1:
        """Gives the message that is on its way to very many queues to the next ones."""
        cdef Leaving leaving = self.leaving
        cdef WideLetter letter = leaving.letter
        cdef Refused refused = leaving.refused
        cdef int result = STORED
        if self.persister.tail_bytes > self.persister.tail_limit:
            # To many queues it may be more than may wait for the disk.
            self.offer_later()
            return 0
        try:
            if not letter.go_on_a_turn(False):
                self.wake()
                return 0
        except Exception:
            refused = self.tell_failure(refused)
            result = REJECTED
        self.end_leaving()
        self.takers = None
        self.waits = letter.refused if result == STORED else letter.only
        self.given = letter.result & NEEDS_SYNC | (STORED if refused is None else refused.given)
        if self.waits is not None:
            result = REJECTED
        elif not letter.taken and refused is None and result == STORED:
            self.unroutable += 1
        if leaving.refused is not None:
            self.offer_at += result == REJECTED
            self.full |= letter.refused or set()
        return self.conclude(result, &leaving.place, refused, leaving.at, safe)

    cdef int conclude(self, int result, Place* place, Refused refused, Py_ssize_t at,
                      list safe) except -1:
        """All queues were offered a message: who have it is in `takers`. If one refused it, it gets
        this place among the refused ones."""
        if result == REJECTED:
            if refused is None:
                refused = Refused()
            refused.place = place[0]
            refused.takers = self.takers
            refused.waits = self.waits
            refused.given = self.given
            self.refused.insert(at, refused)
            self.offer_later()
        elif self.given & NEEDS_SYNC and self.durable:
            safe.append(_told(place))
        else:
            self.store.settle(place)
            self.persister.hurry_acks()
        return 0

    cdef int give(self, Message* message, Place* place) except -1:
        """Publishes a message to the queues it reaches now and that do not have it (`takers`), so
        that it goes where an operator sends it meanwhile. REJECTED while one of them is full."""
        cdef Queue queue
        cdef WideLetter letter
        cdef int answer
        cdef bytes exchange
        cdef bytes routing_key = message.routing_key[:message.routing_key_length]
        cdef bytes properties = message.properties[:message.properties_length]
        cdef bint is_refused = False
        cdef bint shared
        targets, changed = self.route(routing_key, properties)
        if changed is not None:
            properties = changed
        if message.body != NULL and self.is_in_memory(place.segment, place.position):
            # A queue that takes it may hand a dead letter over to this exchange, whose tail moves
            # when it takes that.
            exchange = message.exchange[:message.exchange_length]
            body = body_of(message)
            set_parts(message, exchange, routing_key, properties, b"")
            set_body(message, body)
        message.properties = <const uint8_t*> <char*> properties
        message.properties_length = <uint32_t> len(properties)
        message.timestamp = clock.now_ms
        takers = set() if self.takers is None else set(self.takers)
        shared = message.body_length >= self.bodies.embed_below
        if is_wide(targets):
            letter = WideLetter()
            letter.takers, letter.only = self.takers, self.waits
            letter.full = self.full if self.is_again else None
            letter.begin(message, (targets, None), self.bodies, shared)
            self.leaving = Leaving(letter)
            return STORED
        if self.waits is not None:
            # It went to very many before.
            targets = tuple([target for target in targets if target in self.waits])
        elif not targets and self.takers is None:
            self.unroutable += 1
        shared &= len(targets) > 1
        if shared:
            self.bodies.share(message)
        try:
            for queue in targets:
                if queue in takers:
                    continue
                answer = self.ask(queue, message)
                if answer == REJECTED:
                    is_refused = True
                else:
                    takers.add(queue)
                    self.given |= answer & NEEDS_SYNC
        finally:
            self.takers = takers or None
            if shared:
                self.bodies.release(message.reference)
                message.flags &= ~BODY_IS_REFERENCE
        return REJECTED if is_refused else STORED

    cdef int ask(self, Queue queue, Message* message) except -1:
        """What a queue answers. One that refused a message before this one in the same pass is not
        asked: its order would be another."""
        cdef int answer
        if not self.is_again:
            return queue.receive(message, False)
        answer = REJECTED if queue in self.full else queue.receive(message, False)
        if answer == REJECTED:
            self.full.add(queue)
        return answer

    cdef void end_leaving(self):
        """No more queues get the message that was on its way to very many."""
        if self.leaving is not None:
            self.leaving.letter.end()
            self.leaving = None

    def offer_later(self):
        if not self.offering:
            self.offering = True
            self.later(OFFER_AGAIN_S, self.offer)

    def offer(self):
        """Offers what could not leave once more, to the queues that it reaches now: one after the
        other, a part in each turn."""
        cdef Place place
        cdef Message message
        cdef Refused one
        cdef list safe = []
        cdef Py_ssize_t left
        cdef uint32_t count = 0
        cdef int found
        self.offering = False
        if self.deleted:
            return
        if self.leaving is not None:
            self.offer_later()
            self.wake()
            return
        clock.refresh()
        self.end_pass()
        # When they are offered next is decided at the end.
        self.offering = True
        try:
            while count < TURN_RELEASES and self.offer_at < len(self.refused):
                one = self.refused[self.offer_at]
                place = one.place
                found = self.store.read(&place, &message)
                if found == WAIT:
                    break
                count += 1
                left = len(self.refused) - 1
                del self.refused[self.offer_at]
                if found == FOUND:
                    self.release(&message, &place, one, safe)
                    if self.leaving is not None:
                        break
                    self.offer_at += len(self.refused) > left
                else:
                    self.damaged += 1
                    self.store.settle(&place)
        finally:
            self.offering = False
            if safe:
                self.persister.after_round(functools.partial(self.taken, safe))
            self.end_pass()
            if self.offer_at and count == TURN_RELEASES:
                self.offering = True
                self.later(0.0, self.offer)
            elif self.refused:
                self.offer_later()
            self.wake()

    cdef void end_pass(self):
        """All of them were offered, and the one that is on its way has its place again."""
        if self.leaving is None and self.offer_at >= len(self.refused):
            self.offer_at = 0
            self.full.clear()

    def taken(self, list places):
        """The targets of these messages have them on disk."""
        if not self.deleted:
            self.settle_all(places)

    cdef int settle_all(self, list places) except -1:
        cdef Place place
        place.redelivered = 0
        self.persister.hurry_acks()
        for told in places:
            place.segment, place.position, place.length, place.body_length = told
            self.store.settle(&place)
        return 0

    # -- looking and cancelling --------------------------------------------------------------------

    def browse(self, *, after=START, until=None):
        """Reads what waits, in the order in which it is due."""
        return Browser(self, after, until)

    def is_waiting(self, int64_t due, uint32_t segment, uint32_t position) -> bool:
        """Whether the message at this place, due then, still waits."""
        if (due, segment, position) <= (self.last.due, self.last.segment, self.last.position):
            return False
        return (not self.schedule.cancelled.holds(segment, position)
                and self.store.segments.find(segment) != NULL
                and is_live(self.store, segment, position))

    def cancel(self, uint32_t segment, uint32_t position, uint32_t length,
               uint32_t body_length) -> None:
        """Drops a message that waits (`is_waiting`). Raises PreconditionFailed if too many are
        cancelled and not yet due."""
        cdef Place place
        place.segment = segment
        place.position = position
        place.length = length
        place.body_length = body_length
        place.redelivered = 0
        if self.schedule.cancelled.is_full:
            self.forget_gone()
            if self.schedule.cancelled.is_full:
                raise PreconditionFailed(
                    f"{self.schedule.cancelled.count} cancelled messages of exchange "
                    f"'{self.name}' are not yet due: no more can be cancelled until some are "
                    "(delayed_cancelled_max); deleting the exchange drops all")
        self.schedule.cancel(segment, position)
        self.store.pick(&place)
        self.store.settle(&place)
        self.cancelled += 1

    def in_memory(self, uint32_t segment, uint32_t position):
        """The whole record at a place that has not been written yet, or None."""
        cdef Place place
        cdef Message message
        if not self.is_in_memory(segment, position):
            return None
        place.segment = segment
        place.position = position
        self.store.read(&place, &message)
        return (message.timestamp, message.exchange[:message.exchange_length],
                message.routing_key[:message.routing_key_length],
                message.properties[:message.properties_length], record_bytes(&message),
                message.body_length)

    cdef bint is_in_memory(self, uint32_t segment, uint32_t position) except -1:
        """Whether the record at a place has not been written yet."""
        cdef Segments segments = self.store.segments
        return (segments.find(segment) != NULL
                and segments.block_of(segments.find(segment), position) != NULL)

    # -- start, rest, end --------------------------------------------------------------------------

    def recover(self) -> list:
        """Finds the messages of the last run again. Returns what was wrong."""
        problems = recover(self.store)
        # Empty or not, it goes with the exchange.
        self.store.folder.made = disk.exists(self.store.directory)
        return problems + restore(self.store, self.schedule)

    def start(self) -> None:
        """The loop runs."""
        if self.schedule.in_memory >= self.schedule.table_max:
            self.schedule.spill()
        self.wake()

    def rest_if_empty(self) -> None:
        """An exchange that holds nothing back has no files."""
        if self.store.total == 0 and not self.deleted:
            self.store.rest()
        self.forget_gone()

    def forget_gone(self) -> None:
        """Cancelled messages of segments that are gone need not be known."""
        if self.schedule.cancelled.count:
            self.schedule.cancelled.forget_gone(self.has_segment)

    def has_segment(self, uint32_t number) -> bool:
        return self.store.segments.find(number) != NULL

    def delete(self) -> None:
        """The exchange is gone, and with it all it held back."""
        self.deleted = True
        self.end_leaving()
        if self.timer is not None:
            self.timer.cancel()
        self.refused = []
        self.offer_at = 0
        self.full.clear()
        self.schedule.delete()
        self.store.delete()

    def close(self) -> None:
        """Clean stop."""
        self.end_leaving()
        if not self.deleted:
            self.store.close()

    # -- what no queue of this kind does -----------------------------------------------------------

    cdef int settle(self, Place* place, bint acked) except -1:
        return 0

    cdef int requeue(self, Place* place) except -1:
        return 0

    cdef int touch(self) except -1:
        return 0


cdef tuple _told(Place* place):
    return place.segment, place.position, place.length, place.body_length

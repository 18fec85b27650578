# cython: language_level=3
"""The stream: a log that many consumers read, each at its own offset. Reading does not remove
messages; retention removes the oldest, a segment at a time.

Every message is kept on disk, whatever its delivery mode, and is delivered once it is synced.
"""

import logging

from libc.stdint cimport INT64_MIN, int64_t, uint8_t, uint32_t, uint64_t

from broker.kernel cimport clock
from broker.kernel.contracts cimport Consumer, NEEDS_SYNC
from broker.kernel.message cimport Message, Place
from broker.kernel.turn cimport Turn
from broker.queues.counters cimport (
    ACK, BYTES, CONFIRM, DELIVER, PUBLISH, QueueCounters, READY, REDELIVER, REJECT, USE_ACK,
    USE_ACK_BYTES, USE_DELIVER, USE_DELIVER_BYTES, USE_DELIVER_NO_ACK, USE_DELIVER_NO_ACK_BYTES,
    USE_REDELIVER, USE_REDELIVER_BYTES, USE_REJECT, USE_REJECT_BYTES,
)
from broker.queues.declared cimport DeclaredQueue, Levels
from broker.queues.stream_arguments import Retention, Start, reading_of, start_of
from broker.queues.stream_headers cimport note_values
from broker.queues.stream_reader cimport Readers, StreamReader
from broker.queues.stream_reader import StreamBrowser
from broker.schema.errors import NotImplementedYet, describe
from broker.settings.bounds import DEFAULTS
from broker.store.commit.persister cimport Persister
from broker.store.log.segments cimport QueueDirectory
from broker.store.streams.alike cimport append_alike
from broker.store.streams.recovery import recover
from broker.store.streams.store cimport SharedHeaders, StreamStore

log = logging.getLogger("leveret.stream")

# How often a stream with a maximum age looks for segments that are too old.
AGE_CHECK_S = 60.0


cdef class StreamQueue(DeclaredQueue):
    """A queue of type stream. `parent` is the directory of the vhost's queues."""

    def __init__(self, Turn turn, Persister persister, str parent, str vhost_name, str name,
                 uint64_t incarnation, *, bint durable=True, bint exclusive=False,
                 bint auto_delete=False, arguments=None, owner=None, bounds=DEFAULTS):
        DeclaredQueue.__init__(
            self, vhost_name, name, incarnation, durable=durable, exclusive=exclusive,
            auto_delete=auto_delete, arguments=arguments, owner=owner, bounds=bounds)
        self.counts = QueueCounters()
        self.turn = turn
        self.retention = Retention.of(arguments or {})
        self.store = StreamStore(
            QueueDirectory(persister, parent, incarnation), durable, self.advanced,
            bounds.stream_offsets, self.retention.segment_size)
        self.store.offsets.forgot = self.forgot_offset
        self.store.note_message = note_values
        self.readers = Readers(turn, self.store)

    # -- what others see ---------------------------------------------------------------------------

    type = property(lambda self: "stream")
    state = property(lambda self: "paused" if self.paused else "running")
    paused = property(lambda self: self.readers.paused)
    limits = property(lambda self: None)
    exclusive_consumer_tag = property(lambda self: None)
    single_active_consumer = property(lambda self: None)
    single_active_consumer_tag = property(lambda self: None)

    @property
    def consumers(self):
        return [reader.consumer for reader in self.readers.all] + self.readers.expected

    @property
    def consumer_count(self):
        return len(self.readers.all) + len(self.readers.expected)

    @property
    def messages_ready(self):
        return self.store.total

    @property
    def messages_unacknowledged(self):
        """None: what a consumer did not ack yet is still counted among the ready ones."""
        return 0

    @property
    def message_bytes_ready(self):
        return self.store.total_bytes

    message_bytes_unacknowledged = property(lambda self: 0)
    messages = property(lambda self: self.store.total)
    message_bytes = property(lambda self: self.store.total_bytes)

    @property
    def message_bytes_persistent(self):
        return self.store.total_bytes

    @property
    def segments(self):
        return len(self.store.summaries)

    @property
    def disk_bytes(self):
        return self.store.disk_bytes

    disk_bytes_live = property(lambda self: self.store.disk_bytes)

    def counters(self) -> dict:
        """Cumulative counts since the stream was declared or recovered, under RabbitMQ's names."""
        return {
            "publish": self.counts.published,
            "confirm": self.counts.confirmed,
            "deliver": self.readers.delivered,
            "deliver_no_ack": 0,
            "get": 0,
            "get_no_ack": 0,
            "get_empty": 0,
            "ack": self.readers.acked,
            "redeliver": self.readers.redelivered,
            "reject": self.readers.rejected,
        }

    def stream_figures(self) -> dict:
        """What only a stream has, for the API: offsets, times (ms since 1970), what filters and
        retention did, and the consumers' places that the server keeps."""
        summaries = self.store.summaries
        newest = summaries[len(summaries) - 1] if self.store.total else None
        return {
            "first_offset": self.store.first_offset,
            "next_offset": self.store.next_offset,
            "first_timestamp": summaries[0].first_timestamp if self.store.total else None,
            "last_timestamp": newest.last_timestamp if newest is not None else None,
            "dropped": self.counts.dropped,
            "segments_skipped": self.readers.segments_skipped,
            "unreadable_bytes": self.store.damaged,
            "consumer_offsets": [
                {"consumer_tag": tag, "offset": offset}
                for tag, offset in self.store.offsets.stored().items()],
            "consumer_offsets_max": self.bounds.stream_offsets,
            "consumer_offsets_forgotten": self.store.offsets.forgotten,
            "tier": self.tier_figures(),
        }

    def tier_figures(self):
        """Where the segments are, with their bytes; None if none was ever to leave this disk."""
        if not self.retention.tier and self.store.listed is None:
            return None
        store = self.store
        return {
            "on": self.retention.tier,
            "local_max_bytes": self.retention.local_bytes,
            "local_max_age": self.retention.local_age,
            "segments": len(store.summaries),
            "tiered_segments": store.tiered_segments,
            "tiered_bytes": store.tiered_bytes,
            "local_segments": len(store.summaries) - store.cold_segments,
            "local_bytes": store.disk_bytes,
            "remote_segments": store.cold_segments,
            "remote_bytes": store.cold_bytes,
        }

    def forgot_offset(self, str tag):
        """The offset of a consumer was dropped to make room for another. The 1st, 2nd, 4th, 8th …
        is logged."""
        cdef uint64_t count = self.store.offsets.forgotten
        if count & (count - 1) == 0:
            log.warning(
                "%s keeps the places of %d consumer tags (stream_offsets_max): that of %r, stored "
                "longest ago, was removed, %d since the start; its consumer would continue at the "
                "end",
                describe("queue", self.name, self.vhost_name), self.bounds.stream_offsets, tag,
                count)

    # -- publishing --------------------------------------------------------------------------------

    cdef int publish(self, Message* message, bint confirm) except -1:
        return self.publish_sharing(
            message, confirm, message.properties, message.properties_length, NULL)

    cdef int publish_sharing(self, Message* message, bint confirm, const uint8_t* noted,
                             uint32_t noted_length, SharedHeaders* shared) except -1:
        """As `publish`, where `noted` are the message's own properties; `append_sharing` says what
        `shared` is."""
        if clock.now_ms > self.backlog.noted_at:
            self.note_held(clock.now_ms)
        self.store.append_sharing(message, noted, noted_length, shared)
        self.counts.published += 1
        self.counts.bytes_in += message.body_length
        if confirm:
            self.counts.confirmed += 1
        if self.readers.waiting:
            self.store.ask()
        return NEEDS_SYNC

    cdef bint publish_alike(self, const Message* messages, uint32_t count, SharedHeaders* shared,
                            const uint8_t* table, uint32_t table_length,
                            bint with_body) except -1:
        """As `publish_sharing`, of what `append_alike` takes. False: it does not, and nothing is
        published."""
        cdef uint64_t size = self.store.total_bytes
        if clock.now_ms > self.backlog.noted_at:
            self.note_held(clock.now_ms)
        if not append_alike(
                self.store, messages, count, shared, table, table_length, with_body):
            return False
        self.counts.published += count
        self.counts.bytes_in += self.store.total_bytes - size
        if self.readers.waiting:
            self.store.ask()
        return True

    # -- retention ---------------------------------------------------------------------------------

    def advanced(self):
        """More of the log is synced: readers may continue, and if a segment was sealed, the oldest
        may be removed."""
        self.readers.wake()
        if len(self.store.summaries) > 1:
            self.retain()

    def retain(self) -> None:
        """Removes the oldest segments that exceed the limits. An internal error here is logged once
        and keeps segments that could be removed; confirmed messages do not depend on it."""
        try:
            self.drop_old()
            self.cannot_drop = False
        except Exception:
            if not self.cannot_drop:
                self.cannot_drop = True
                log.exception("%s cannot drop what its limits do not allow for",
                              describe("queue", self.name, self.vhost_name))

    cdef int drop_old(self) except -1:
        cdef uint64_t size = self.store.total_bytes
        clock.refresh()
        self.note_held(clock.now_ms)
        limits = self.retention
        self.counts.dropped += self.store.retain(
            limits.max_length, limits.max_length_bytes,
            clock.now_ms - limits.max_age if limits.max_age >= 0 else INT64_MIN)
        self.counts.dropped_bytes += size - self.store.total_bytes
        if self.timer is None and limits.max_age >= 0 and len(self.store.summaries) > 1:
            self.timer = self.later(
                min(AGE_CHECK_S, max(1.0, limits.max_age / 4000)), self.age_check)
        return 0

    def age_check(self):
        """The timer of `retain`; it runs while there is more than the active segment."""
        self.timer = None
        if not self.deleted and len(self.store.summaries) > 1:
            self.retain()

    def reconfigure(self, effective) -> None:
        """The arguments that are in force have changed: those of the queue with its policies'."""
        self.retention = Retention.of(effective)
        self.store.set_segment_size(self.retention.segment_size)
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self.retain()

    # -- recovery ----------------------------------------------------------------------------------

    def recover(self) -> list:
        """Finds the messages of the last run again. Returns what was wrong."""
        problems = recover(self.store)
        clock.refresh()
        self.backlog.noted_at = clock.now_ms
        return problems

    def wake(self):
        """The loop runs: what was recovered may be too old by now."""
        self.retain()

    # -- consumers ---------------------------------------------------------------------------------

    def consumed_by(self, channel, str tag, bint no_ack, bint exclusive, arguments):
        """A reader at the place that a consumer's arguments ask for. Raises PreconditionFailed."""
        clock.refresh()
        reading = reading_of(
            arguments, tag=tag, no_ack=no_ack, exclusive=exclusive,
            prefetch_count=channel.prefetch_count,
            global_prefetch_count=channel.global_prefetch_count,
            now_ms=clock.now_ms, resource=describe("queue", self.name, self.vhost_name),
            bounds=self.bounds)
        return StreamReader(self, self.readers, reading.start or Start("next"), reading.filter,
                            tag if reading.tracked else None)

    def cannot_read(self, StreamReader reader, Consumer consumer, str why) -> None:
        """A consumer waits for messages that the object store does not give: it is cancelled, and
        may come back at its place when the store is there again."""
        log.error(
            "%s: consumer '%s' of connection %s is cancelled at offset %d, which is in the object "
            "store: %s", describe("queue", self.name, self.vhost_name), consumer.tag,
            consumer.channel.connection.name, reader.frontier, why)
        reader.remove_consumer(consumer)
        consumer.channel.connection.cancel_consumer(consumer)

    def start_of(self, value, now_ms: int):
        """Where a reader begins that asks for this x-stream-offset; None if it makes no sense."""
        return start_of(value, now_ms)

    def start_at(self, time_ms: int):
        """Where a reader begins that asks for what the stream got at this time or later."""
        return Start("time", time_ms)

    def browse(self, start, uint32_t count, uint64_t bytes_max, done):
        """Reads messages for a person to look at, or for a transfer; see `StreamBrowser`, which is
        returned."""
        browser = StreamBrowser(self.store, start, count, bytes_max, self.later, done)
        browser.go_on()
        return browser

    def pause(self) -> None:
        """Stops all deliveries; publishes are still accepted."""
        self.readers.paused = True

    def resume(self) -> None:
        """Resumes deliveries."""
        self.readers.resume()

    def get(self, getter, *, bint forced=False) -> None:
        """Refused, as `check_get` does."""
        self.check_get()

    def check_get(self) -> None:
        """A stream gives no message away. Raises NotImplementedYet (540)."""
        raise NotImplementedYet(
            "basic.get not supported by stream queues "
            + describe("queue", self.name, self.vhost_name))

    def add_consumer(self, Consumer consumer) -> None:
        """Consumers are added to their readers."""
        raise TypeError("a stream's consumers belong to its readers")

    def remove_consumer(self, Consumer consumer) -> None:
        """Consumers are removed from their readers."""
        (<StreamReader> consumer.queue).remove_consumer(consumer)

    cdef int settle(self, Place* place, bint acked) except -1:
        return 0

    cdef int requeue(self, Place* place) except -1:
        return 0

    cdef int touch(self) except -1:
        return 0

    cdef int work(self) except -1:
        return 0

    def settle_place(self, tuple place, bint acked=True) -> None:
        """A stream has no delivered messages to settle or requeue."""

    def requeue_place(self, tuple place) -> None:
        """A stream has no delivered messages to settle or requeue."""

    # -- end ---------------------------------------------------------------------------------------

    def purge_part(self, uint32_t most) -> int:
        """Nothing comes back to a stream."""
        return 0

    def purge(self) -> int:
        """Removes all messages; offsets continue. Returns the number of messages."""
        clock.refresh()
        self.note_held(clock.now_ms)
        self.counts.purged += self.store.total
        self.counts.purged_bytes += self.store.total_bytes
        return self.store.purge()

    def delete(self) -> int:
        """Ends the stream and removes its messages. Returns their number."""
        count = self.messages_ready
        clock.refresh()
        self.note_held(clock.now_ms)
        self.held(&self.counts.removed, &self.counts.removed_bytes)
        self.deleted = True
        if self.timer is not None:
            self.timer.cancel()
        self.store.delete()
        return count

    cdef int levels(self, Levels* found) except -1:
        found.ready = self.store.total
        found.unacked = 0
        found.bytes = self.store.total_bytes
        found.consumers = len(self.readers.all) + len(self.readers.expected)
        return 0

    cdef int sample(self, double* row, double* signs) except -1:
        cdef Levels held
        row[PUBLISH] = self.counts.published
        row[DELIVER] = self.readers.delivered
        row[ACK] = self.readers.acked
        row[REDELIVER] = self.readers.redelivered
        row[REJECT] = self.readers.rejected
        row[CONFIRM] = self.counts.confirmed
        self.levels(&held)
        row[READY] = held.ready
        row[BYTES] = held.bytes
        signs[0] = held.consumers
        signs[1] = self.readers.paused
        signs[2] = 0
        signs[3] = self.counts.dropped
        return 0

    cdef void held(self, uint64_t* messages, uint64_t* size) noexcept:
        messages[0] = self.store.total
        size[0] = self.store.total_bytes

    cdef int64_t oldest(self) except -2:
        if self.store.total == 0:
            return -1
        return self.store.summaries[0].first_timestamp

    cdef int use(self, int64_t now, uint64_t* row) except -1:
        DeclaredQueue.use(self, now, row)
        row[USE_DELIVER] = self.readers.delivered - self.readers.delivered_no_ack
        row[USE_DELIVER_NO_ACK] = self.readers.delivered_no_ack
        row[USE_DELIVER_BYTES] = self.readers.bytes_out - self.readers.no_ack_bytes
        row[USE_DELIVER_NO_ACK_BYTES] = self.readers.no_ack_bytes
        row[USE_REDELIVER] = self.readers.redelivered
        row[USE_REDELIVER_BYTES] = self.readers.redelivered_bytes
        row[USE_ACK] = self.readers.acked
        row[USE_ACK_BYTES] = self.readers.acked_bytes
        row[USE_REJECT] = self.readers.rejected
        row[USE_REJECT_BYTES] = self.readers.rejected_bytes
        return 0

    def close(self) -> None:
        """Clean stop: the persister writes what is left."""

    def rest_if_idle(self, double now, double after) -> None:
        """An idle stream has no buffers to free."""

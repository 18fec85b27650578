# cython: language_level=3
"""What queues ask of the store of their messages, which has levels of priority or does without."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from broker.kernel.message cimport Message, Place
from broker.store.bodies.reader cimport BODY_MISSING
from broker.store.commit.contracts cimport Dirty

NO_END = <uint64_t> -1


cdef class MessageStore(Dirty):
    """The messages of one queue. `ready` counts what waits for delivery, `total` what is not
    settled. A store without priorities has one level, 0."""

    @property
    def directory(self) -> str:
        return self.folder.path

    @property
    def incarnation(self) -> int:
        return self.folder.incarnation

    # -- messages ----------------------------------------------------------------------------------

    cdef int append(self, Message* message) except -1:
        """Stores one message at the end."""
        raise NotImplementedError

    cdef int append_run(self, const Message* messages, uint32_t count) except -1:
        """Stores several with bodies of their own."""
        raise NotImplementedError

    cdef int peek(self, Message* message, Place* place) except -1:
        """Points at the next message to deliver. WAIT: the owner is touched when it can be had. The
        view ends with the next call."""
        raise NotImplementedError

    cdef uint32_t peek_run(self, Message* messages, Place* places, uint32_t most) noexcept:
        """Points at the next messages, as many of `most` as are in memory and can be delivered now
        for the first time; changes nothing. 0: `peek` has to look."""
        return 0

    cdef int advance_run(self, const Place* places, uint32_t count, uint64_t size) except -1:
        """The first messages that `peek_run` showed are taken; their bodies have `size` bytes
        together."""
        raise NotImplementedError

    cdef int settle_run(self, Place* places, uint32_t count) except -1:
        """Forgets messages of one segment that were taken."""
        raise NotImplementedError

    cdef int resolve(self, Message* message, Place* place) except -1:
        """`find_body` for the message that `peek` showed. EMPTY: it is dropped, and the next one
        can be asked for."""
        cdef int found = self.find_body(message)
        if found == EMPTY:
            self.advance(place)
            self.settle(place)
        return found

    cdef int find_body(self, Message* message) except -1:
        """Points a message at its shared body. WAIT: the owner is touched when it can be had.
        EMPTY: there is no such body any more."""
        cdef int found
        if message.body != NULL:
            return FOUND
        # A store with levels has one reader of bodies for all of them, its own.
        found = self.refs.find(message, self.folder.incarnation, self.touch)
        return EMPTY if found == BODY_MISSING else found

    cdef int advance(self, Place* place) except -1:
        """The message that `peek` showed is taken."""
        raise NotImplementedError

    cdef int settle(self, Place* place) except -1:
        """Forgets a message that was taken."""
        raise NotImplementedError

    cdef int requeue(self, Place* place) except -1:
        """Puts a message that was taken back at its original position."""
        raise NotImplementedError

    cdef int read(self, Place* place, Message* message) except -1:
        """Points at a message that was delivered and is not settled. WAIT: the owner is touched
        when it is read. EMPTY: its bytes are damaged and it is lost."""
        raise NotImplementedError

    cdef uint64_t end(self) noexcept:
        """A mark behind the last message of now, for `is_behind`, until the next call."""
        return 0

    cdef bint is_behind(self, Place* place, uint64_t end) noexcept:
        """Whether a message came after a mark."""
        return False

    cdef uint32_t count_return(self, Place* place) except? 0:
        """A message came back once more; how often it has by now. Survives a restart."""
        raise NotImplementedError

    cdef uint32_t returns_of(self, Place* place) except? 0:
        raise NotImplementedError

    def purge_part(self, uint32_t most) -> int:
        """Settles up to `most` of the messages that came back: a million take 110 ms. Returns
        how many; 0: none is left."""
        raise NotImplementedError

    def purge(self) -> int:
        """Settles every ready message without reading it. Returns how many."""
        raise NotImplementedError

    # -- levels ------------------------------------------------------------------------------------

    cdef int next_level(self, int above) noexcept:
        """The highest level below `above` with ready messages, or -1."""
        return -1

    cdef int peek_at(self, int level, Message* message, Place* place) except -1:
        """As `peek`, for the first ready message of a level."""
        raise NotImplementedError

    cdef int look_at(self, int level, Message* message) except -1:
        """As `peek_at`, but only for reading: leaves no mark that the message may have been
        delivered."""
        raise NotImplementedError

    cdef bint first_place(self, Place* place) noexcept:
        """Segment and position of the next message to deliver; False without any. Has no side
        effects."""
        return False

    cdef int peek_least(self, Message* message, Place* place) except -1:
        """As `peek`, for the message that can be spared first."""
        raise NotImplementedError

    cdef int64_t deadline_at(self, int level, int64_t queue_ttl) noexcept:
        """When the first ready message of a level expires (ms), if that is known; else 0."""
        return 0

    cdef void note_deadline(self, int level, int64_t queue_ttl, int64_t deadline) noexcept:
        """The first ready message of a level expires then."""

    # -- the stores of the levels, which hold the segments -----------------------------------------

    cdef list parts(self):
        """The store of each level, or None for one that was not used yet."""
        raise NotImplementedError

    cdef MessageStore part(self, int level):
        """The store of a level, or None."""
        raise NotImplementedError

    cdef MessageStore part_of(self, uint32_t segment):
        """The store that has segments with such a number; None if no store of this queue wrote
        it."""
        raise NotImplementedError

    cdef MessageStore part_for(self, Message* message):
        """The store that has a message like this one, or None."""
        raise NotImplementedError

    cdef int take_out(self, int level) except -1:
        """Before the store of a level is changed from outside: its counts leave the sums."""
        return 0

    cdef int put_in(self, int level) except -1:
        """After it: they come back."""
        return 0

    # -- start, rest and end -----------------------------------------------------------------------

    cdef int recovered(self) except -1:
        """Every segment is found again."""
        return 0

    cdef uint32_t unused_number(self) noexcept:
        """From this segment number on none was ever given, for the queue's next store."""
        return 1

    cdef void go_on_from(self, uint32_t number) noexcept:
        """An earlier store of the queue gave the numbers below."""

    def rest(self) -> None:
        """The queue is idle: gives back the memory and files that it does not need."""
        raise NotImplementedError

    def close(self) -> None:
        """Clean stop: the watermarks become exact, so that only what was delivered comes back as
        redelivered. What is still in memory gets an exact one when it is written."""
        raise NotImplementedError

    def delete(self) -> None:
        """The queue is deleted: frees its memory and removes its files."""
        raise NotImplementedError

    # -- figures -----------------------------------------------------------------------------------

    def count_references(self) -> int:
        """Living records whose body is shared."""
        raise NotImplementedError

    @property
    def segment_count(self) -> int:
        raise NotImplementedError

    @property
    def disk_bytes(self) -> int:
        """Bytes that the queue's files take on the disk, as handed to the writer, without holes."""
        raise NotImplementedError

    @property
    def disk_bytes_live(self) -> int:
        """Bytes of the queue's files that hold unsettled messages."""
        raise NotImplementedError

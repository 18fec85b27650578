# cython: language_level=3
"""The loop's look at its sockets: plain connections are received, taken apart and answered here,
without a Python frame or object per socket and turn.

An owner of each socket accepts, pauses and closes it, sends what the kernel did not take at once,
and handles every end and error: `PlainSocket` (`plain.pyx`), or asyncio. Only that bytes have come
on a watched socket is no event for it, nor that a watched thread is done. While nothing else
happens, turns follow each other in `Sockets.wait`, which is what the loop's selector waits in
(`loop.py`).
"""

import heapq
import logging
import os

from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint32_t, uint64_t
from posix.time cimport timespec

from broker.kernel cimport clock
from broker.kernel.coalescing cimport Coalescing
from broker.kernel.moderation cimport Moderation
from broker.kernel.octets cimport Octets, writable_octets
from broker.kernel.turn cimport Turn
from broker.kernel.waking cimport Waking
from broker.store.commit.persister cimport Persister
from broker.wire.frame_parser cimport FrameParser


cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        int fd
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_wait(int epoll, epoll_event* events, int most, int timeout)
    uint32_t EPOLLIN, EPOLLOUT


cdef extern from "<sys/prctl.h>" nogil:
    int prctl(int option, unsigned long value, ...)
    int PR_SET_TIMERSLACK


cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <poll.h>
    """
    struct pollfd:
        int fd
        short events
    int ppoll(pollfd* fds, unsigned long count, const timespec* longest, const void* mask) nogil
    short POLLIN


cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int fd, void* data, size_t length, int flags)
    int MSG_DONTWAIT


log = logging.getLogger("leveret.turn")

cdef enum:
    LOOKED_AT = 256              # sockets at a look; the others that are ready come first next time
    LONGEST_MS = 86400000


cdef class Receiver:
    """A socket whose bytes are not frames yet: they are received into `buffer`, and then
    `protocol.buffer_updated(length)` is called. `rests` lets it rest."""

    cdef Octets buffer
    cdef object protocol
    cdef object rests
    cdef object took

    def __init__(self, buffer, protocol, rests):
        self.buffer = writable_octets(buffer)
        self.protocol = protocol
        self.rests = rests
        self.took = protocol.buffer_updated


cdef class Sockets:
    """What is watched, by descriptor: a FrameParser, a Receiver, or something to call.

    `buffer` is what all connections are received into. `under_pressure(connection, grown)` is
    called after a chunk while unwritten messages fill their memory; `grown` bytes came with it.
    `walk_over_young()`, if set, is called before a look when the loop has worked for
    `walk_every_ns` since the last time: while it waits no objects come. `looking`, if set, is
    called with True before each look and with False behind it, for tests that measure turns.
    """

    cdef Turn turn
    cdef Waking waking
    cdef Persister persister
    cdef object under_pressure
    cdef public object walk_over_young
    cdef public uint64_t walk_every_ns
    cdef uint64_t woke_ns            # when the last look was over
    cdef uint64_t worked_ns          # between looks, since the last walk
    cdef public object looking
    cdef public bint due             # callbacks or timers were added: the loop has its turn
    cdef list watched
    cdef list owners                 # by descriptor; None: asyncio
    cdef list coalescings            # by descriptor; None: not tried
    cdef int coalesced               # those that are on
    cdef list resting                # a heap: (its end, monotonic ns; fd; Coalescing; rests)
    cdef Octets buffer
    cdef readonly int epoll          # -1: the loop is not ours
    cdef epoll_event events[LOOKED_AT]

    def __init__(self, Turn turn, Persister persister, buffer, under_pressure):
        self.turn = turn
        self.waking = Waking()
        self.persister = persister
        self.buffer = writable_octets(buffer)
        self.under_pressure = under_pressure
        self.watched = []
        self.owners = []
        self.coalescings = []
        self.resting = []
        self.epoll = -1

    def open(self, int epoll):
        """From now on `wait` is called between the turns of the loop, and ends them."""
        self.epoll = epoll
        self.turn.is_awaited = True
        # Otherwise the kernel may round a sleep of 100 microseconds up by half.
        prctl(PR_SET_TIMERSLACK, 1000)

    def watch(self, int fd, handler, owner=None):
        """What comes on this socket goes to a Connection or a Receiver; or `handler()` is called
        while this descriptor is readable. asyncio reads it, too, where this loop is not ours. All
        else goes to `owner.ready(events)`; without one, to asyncio."""
        while len(self.watched) <= fd:
            self.watched.append(None)
            self.owners.append(None)
            self.coalescings.append(None)
        self.watched[fd] = handler
        self.owners[fd] = owner

    def forget(self, int fd):
        """The descriptor is about to be closed; harmless if it was not watched."""
        if 0 <= fd < len(self.watched):
            self.watched[fd] = self.owners[fd] = None
            if self.coalescings[fd] is not None:
                self.coalesced -= (<Coalescing> self.coalescings[fd]).is_on
                self.coalescings[fd] = None

    def wait(self, timeout):
        """Serves what is watched until there is something else to do, or `timeout` (seconds; None:
        for ever) is over. Returns (descriptor, epoll's events) of the others that are ready."""
        cdef list others = []
        cdef uint64_t until = 0
        cdef uint64_t now
        cdef int count, at, patience
        cdef bint is_endless = timeout is None
        if not is_endless:
            now = <uint64_t> clock.monotonic_ns()
            until = now + <uint64_t> (min(max(timeout, 0.0), LONGEST_MS / 1000) * 1e9)
        while True:
            now = <uint64_t> clock.monotonic_ns()
            if self.walk_over_young is not None:
                self.worked_ns += now - self.woke_ns
                if self.worked_ns >= self.walk_every_ns:
                    self.worked_ns = 0
                    self.walk_over_young()
                    now = <uint64_t> clock.monotonic_ns()
            patience = -1
            if self.turn.scheduled:
                patience = 0
            elif not is_endless:
                # Rounded up: a timer must not fire early.
                patience = <int> ((until - now + 999999) // 1000000) if until > now else 0
            if self.resting:
                patience = self.until_rested(now, patience)
            self.due = False
            count = self.look(patience)
            now = self.woke_ns = <uint64_t> clock.monotonic_ns()
            if self.resting:
                self.end_rests(now)
            for at in range(count):
                self.serve(&self.events[at], others)
            if self.turn.scheduled or self.turn.chunks:
                if count > 0:
                    # What it took to receive, and with TLS to decipher, was no time between turns.
                    self.turn.moderation.ended += <uint64_t> clock.monotonic_ns() - now
                self.end_turn()
            if (others or self.due or count < 0
                    or (not is_endless and <uint64_t> clock.monotonic_ns() >= until)):
                return others

    cdef int look(self, int patience) except -2:
        """Waits `patience` ms for events. Returns how many there are; -1: a signal came first."""
        cdef int count
        cdef int error = 0
        if self.looking is not None:
            self.looking(True)
        with nogil:
            count = epoll_wait(self.epoll, self.events, LOOKED_AT, patience)
            if count < 0:
                error = errno
        if self.looking is not None:
            self.looking(False)
        if error == EINTR:
            PyErr_CheckSignals()
        elif error:
            raise OSError(error, os.strerror(error))
        return count

    cdef int until_rested(self, uint64_t now, int patience) except -2:
        """`patience` (ms; -1: for ever), but not longer than until the next rest is over."""
        cdef uint64_t over = self.resting[0][0]
        cdef int left = <int> ((over - now + 999999) // 1000000) if over > now else 0
        return left if patience < 0 else min(patience, left)

    cdef int end_rests(self, uint64_t now) except -1:
        """Sockets whose rest is over are looked at again."""
        cdef Coalescing coalescing
        while self.resting and self.resting[0][0] <= now:
            _over, fd, coalescing, rests = heapq.heappop(self.resting)
            if self.coalescings[fd] is not coalescing:
                continue              # the socket was closed
            try:
                rests.bound_receiving(coalescing.room(), coalescing.may_grow())
                rests.end_rest()
            except Exception:
                log.exception("descriptor %d failed behind a rest", fd)
        return 0

    cdef int serve(self, epoll_event* event, list others) except -1:
        cdef int fd = event.data.fd
        cdef object handler = self.watched[fd] if fd < len(self.watched) else None
        if handler is None or event.events & ~(EPOLLIN | EPOLLOUT):
            # What is not watched; and ends and errors.
            self.pass_on(fd, event.events, others)
            return 0
        try:
            if isinstance(handler, FrameParser):
                if event.events & EPOLLIN and not self.receive(fd, <FrameParser> handler):
                    self.pass_on(fd, EPOLLIN, others)
            elif isinstance(handler, Receiver):
                if event.events & EPOLLIN and not self.receive_bytes(fd, <Receiver> handler):
                    self.pass_on(fd, EPOLLIN, others)
            else:
                handler()
                return 0
        except Exception:
            log.exception("descriptor %d failed in its turn", fd)
            if isinstance(handler, FrameParser):
                handler.transport.abort()
            elif isinstance(handler, Receiver):
                (<Receiver> handler).protocol.abort()
        if event.events & EPOLLOUT:
            self.pass_on(fd, EPOLLOUT, others)
        return 0

    cdef int pass_on(self, int fd, uint32_t events, list others) except -1:
        """What the socket's owner has to look at."""
        cdef object owner = self.owners[fd] if fd < len(self.owners) else None
        if owner is None:
            others.append((fd, events))
            return 0
        try:
            owner.ready(events)
        except Exception:
            log.exception("descriptor %d failed in its turn", fd)
            owner.abort()
        return 0

    cdef bint receive(self, int fd, FrameParser connection) except -1:
        """Takes a chunk from a socket. False: that is at its end, and its owner has to find out."""
        cdef size_t most = min(self.turn.offer(), self.buffer.length)
        cdef uint64_t before
        cdef ssize_t got
        if self.turn.reading.is_over() and connection.stays_unread():
            return True
        got = recv(fd, self.buffer.data, most, MSG_DONTWAIT)
        if got <= 0:
            return got < 0 and (errno == EAGAIN or errno == EINTR)
        if connection.is_quiet:
            self.owners[fd].listen_closely()
        before = self.persister.tail_bytes
        connection.receive(self.buffer.data, got)
        if self.persister.tail_bytes > self.persister.tail_limit:
            self.under_pressure(connection, <int64_t> (self.persister.tail_bytes - before))
        if self.coalesced or self.turn.moderation.needs_rests(got):
            self.coalesce(fd, got, <size_t> got < most, self.owners[fd])
        return True

    cdef int coalesce(self, int fd, size_t got, bint is_all, rests) except -1:
        """Lets the socket rest behind this chunk if small packets gather so."""
        cdef Coalescing coalescing = self.coalescings[fd]
        cdef uint64_t now
        cdef uint64_t length
        cdef uint64_t room, before
        cdef uint64_t offered = 0
        cdef uint32_t packets = 0
        cdef bint was_on
        if coalescing is None:
            if self.watched[fd] is None or rests is None or not rests.receive_size:
                return 0
            coalescing = self.coalescings[fd] = Coalescing(rests.receive_size)
        was_on = coalescing.is_on
        before = coalescing.room()
        now = <uint64_t> clock.monotonic_ns()
        if coalescing.asks(now):
            offered, packets = rests.counted()
        length = coalescing.rest(now, got, is_all, offered, packets)
        self.coalesced += <int> coalescing.is_on - <int> was_on
        room = coalescing.room()
        if room != before:
            rests.bound_receiving(room, coalescing.may_grow())
        if coalescing.is_on and not coalescing.wide:
            self.turn.is_coalesced = True
        if length:
            rests.bound_receiving(coalescing.room_in_rest(), coalescing.may_grow())
            rests.begin_rest()
            heapq.heappush(self.resting, (now + length, fd, coalescing, rests))
        return 0

    cdef bint receive_bytes(self, int fd, Receiver receiver) except -1:
        """The same for one whose bytes are not frames yet."""
        cdef size_t most = min(self.turn.offer(), receiver.buffer.length)
        cdef ssize_t got = recv(fd, receiver.buffer.data, most, MSG_DONTWAIT)
        if got <= 0:
            return got < 0 and (errno == EAGAIN or errno == EINTR)
        receiver.took(got)
        if self.coalesced or self.turn.moderation.needs_rests(got):
            self.coalesce(fd, got, <size_t> got < most, receiver.rests)
        return True

    cdef int end_turn(self) except -1:
        cdef Moderation moderation = self.turn.moderation
        cdef bint brings_few = moderation.brings_few(self.turn.frames)
        cdef uint64_t now
        moderation.is_awaited = self.persister.in_flight != NULL
        self.waking.frames += self.turn.frames
        if self.turn.scheduled:
            self.persister.second_turn.is_hurried = brings_few
            try:
                self.turn.run()
            except Exception:
                log.exception("the end of a turn failed")
        else:
            # Publishes that are written when the round in flight is over, or parts of messages.
            now = <uint64_t> clock.monotonic_ns()
            self.turn.moderate(now, now)
        if self.turn.pause_ns:
            self.sleep(
                not brings_few and self.persister.is_awaited_for_one()
                and self.waking.is_early(self.woke_ns))
        return 0

    cdef int sleep(self, bint until_written) except -1:
        """For the turn's pause, so that packets gather; `until_written`: not longer than the round
        in flight takes."""
        cdef timespec pause
        cdef pollfd writer
        pause.tv_sec = 0
        pause.tv_nsec = <long> self.turn.pause_ns
        self.turn.pause_ns = 0
        writer.fd = self.persister.writer.event_fd if until_written else -1
        writer.events = POLLIN
        with nogil:
            ppoll(&writer, 1, &pause, NULL)
        self.turn.moderation.slept(<uint64_t> clock.monotonic_ns())
        return 0

# cython: language_level=3
"""Where a large body is collected while its frames come: an unnamed file.

Each body has one file, in the data directory, that no other process can open and that is removed
when it is closed. Bytes are collected in a block; full blocks are written by a thread of their own,
and one body is read back at a time, so a half-sent message costs no more memory than its blocks. A
body that is read back soon never reaches the disk: closing an unnamed file drops its pages.
"""

import collections
import os

from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from broker.kernel.large_body cimport LargeBody
from broker.schema.errors import PreconditionFailed
from broker.store.files.body_record cimport BODY_HEAD
from broker.store.files.disk cimport file_free, file_new
from broker.store.files.operation cimport OP_CLOSE, OP_READ, OP_WRITE_CONTENT, Op
from broker.store.files.io_thread cimport (
    IoThread, Round, STAGE_REMOVE, STAGE_WRITE, round_add, round_free, round_new,
)

cdef enum:
    BLOCK = 128 << 10
    FLYING_MAX = 4               # blocks of one body that wait for the disk
    EIO = 5
    ENOMEM = 12

SMALLEST = BLOCK
"""Bodies up to this size are not worth a file."""


cdef class ContentFile(Dirty):
    """One body of `length` bytes. `tell()` is called when a write or the reading back has ended."""

    def __cinit__(self, ContentFiles files, str directory, uint64_t length, tell):
        self.files = files
        self.length = length
        self.tell = tell
        self.file = file_new(directory)

    def __dealloc__(self):
        free(self.block)
        file_free(self.file)

    @property
    def is_behind(self) -> bool:
        """Whether the disk has to catch up before more may be added."""
        return self.flying >= FLYING_MAX

    cdef int add(self, const uint8_t* data, size_t length) except -1:
        """The next bytes. After an error they are dropped."""
        cdef size_t part
        while length and not self.error:
            if self.block == NULL:
                self.block = <uint8_t*> malloc(BLOCK)
                if self.block == NULL:
                    raise MemoryError("no memory for a block of a message")
                self.filled = 0
            part = BLOCK - self.filled
            if part > length:
                part = length
            memcpy(self.block + self.filled, data, part)
            self.filled += part
            data += part
            length -= part
            if self.filled == BLOCK:
                self.hand_over()
        return 0

    cdef int hand_over(self) except -1:
        """Gives the block to the thread."""
        cdef Round* round = round_new()
        cdef Op* op = round_add(round, STAGE_WRITE, OP_WRITE_CONTENT, self.file)
        # A full disk is a final error here: the write does not wait for space.
        op.can_wait = True
        op.data = self.block
        op.owns_data = True
        op.length = self.filled
        op.offset = self.written
        self.written += self.filled
        self.block = NULL
        self.filled = 0
        return self.submit(round)

    cdef int submit(self, Round* round) except -1:
        round.owner = <void*> self
        self.flying += 1
        self.files.thread.submit(round)
        return 0

    cdef int read_back(self) except -1:
        """Fetches the body into memory: what was written from the file, the rest from the block."""
        cdef Round* round
        cdef Op* op
        try:
            # With room for the head that a body store puts before it.
            self.body = LargeBody(BODY_HEAD, self.length)
        except MemoryError:
            self.error = ENOMEM
        round = round_new()
        op = round_add(round, STAGE_WRITE, OP_READ, self.file)
        if self.body is not None:
            op.data = self.body.memory + BODY_HEAD
            op.length = self.written
            memcpy(op.data + self.written, self.block, self.filled)
        return self.submit(round)

    cdef int done(self, Round* round) except -1:
        """A round of this file is over."""
        cdef Op* op
        self.flying -= 1
        if round.stages[STAGE_WRITE].count:
            op = &round.stages[STAGE_WRITE].ops[0]
            if op.error and not self.error:
                self.error = op.error
            elif op.kind == OP_READ and not self.error:
                if op.done == op.length:
                    self.whole = True
                else:
                    self.error = EIO
        elif self.closing:
            return self.files.ended(self)
        if self.closing:
            return self.close_when_idle()
        self.tell()
        return 0

    cdef int end(self) except -1:
        """The message is routed, or never will be: the file is removed. After that `tell` is called
        once more, when it is removed."""
        if not self.closing:
            self.closing = True
            free(self.block)
            self.block = NULL
            self.close_when_idle()
        return 0

    cdef int close_when_idle(self) except -1:
        cdef Round* round
        if self.flying == 0:
            # Not earlier: the thread may have been reading into it.
            self.body = None
            # Giving its blocks back takes the file system a while.
            round = round_new()
            round_add(round, STAGE_REMOVE, OP_CLOSE, self.file)
            self.submit(round)
        return 0


cdef class ContentFiles:
    """All bodies that are being collected. `under_pressure()` returns whether unwritten messages
    fill their memory: bodies are not read back then. At most `limit` at a time."""

    def __init__(self, str directory, under_pressure):
        self.thread = IoThread("contents")
        # Without space a write fails; the reserve is not used.
        self.thread.impatient = True
        self.directory = directory
        self.under_pressure = under_pressure
        self.open = set()
        self.waiting = collections.deque()
        self.limit = 1024

    @property
    def count(self) -> int:
        """Bodies that are being collected."""
        return len(self.open)

    cdef ContentFile begin(self, uint64_t length, tell):
        """A file for a body of `length` bytes. Raises PreconditionFailed."""
        cdef ContentFile content
        if len(self.open) >= <Py_ssize_t> self.limit:
            raise PreconditionFailed(
                f"cannot take a message of {length} bytes: {self.limit} large messages are being "
                "received (unfinished_max)")
        content = ContentFile(self, self.directory, length, tell)
        self.open.add(content)
        return content

    cdef int ask(self, ContentFile content) except -1:
        """The body is received whole: it is read back when its turn comes."""
        self.waiting.append(content)
        self.go_on()
        return 0

    def go_on(self):
        """Reads the next body back if there is room for it."""
        cdef ContentFile content
        while self.waiting and self.reading is None and not self.under_pressure():
            content = self.waiting.popleft()
            if not content.closing:
                self.reading = content
                content.read_back()

    cdef int ended(self, ContentFile content) except -1:
        self.open.discard(content)
        if self.reading is content:
            self.reading = None
            self.go_on()
        content.tell()
        content.tell = None
        return 0

    def on_done(self):
        """The thread's eventfd is readable."""
        cdef Round* round
        cdef ContentFile content
        try:
            os.eventfd_read(self.thread.event_fd)
        except BlockingIOError:
            return
        round = self.thread.finished()
        while round != NULL:
            content = <ContentFile> round.owner
            content.done(round)
            round_free(round)
            round = self.thread.finished()

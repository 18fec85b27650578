# cython: language_level=3
"""A large body that comes in parts is collected in a file: half-sent ones cost no memory."""

import os

from libc.stdint cimport uint8_t, uint32_t

from broker.schema.errors import PreconditionFailed
from broker.store.commit.content_file cimport ContentFile
from broker.wire.confirming cimport ConfirmingChannel


cdef class CollectingChannel(ConfirmingChannel):
    """With a body that is on its way."""

    cdef int content(self, const uint8_t* body) except -1:
        """A message is whole."""
        raise NotImplementedError

    cdef int collect(self, const uint8_t* payload, uint32_t length) except -1:
        """A part of a large body. The connection is not read while the disk is behind, nor from the
        end of the body until it is read back."""
        self.collected.add(payload, length)
        if self.body_received == self.body_length:
            self.connection.await_collected(self)
            return self.persister.contents.ask(self.collected)
        if self.collected.is_behind:
            self.connection.await_collected(self)
        return 0

    def on_collected(self):
        """The thread that writes collected bodies has done something."""
        content = self.collected
        if content is not None and (content.error or content.whole):
            self.connection.take_collected(self)
        elif content is None or (
                self.body_received < self.body_length and not content.is_behind):
            self.connection.collected(self)

    def take_collected(self):
        """Routes the message if its body is whole. Raises PreconditionFailed if the disk did not
        take it."""
        content = self.collected
        if content.error:
            self.drop_collected()
            self.expect = EXPECT_METHOD
            raise PreconditionFailed(
                f"cannot take a message of {content.length} bytes: {os.strerror(content.error)}")
        if content.whole:
            try:
                self.content((<ContentFile> content).body.body())
            finally:
                self.drop_collected()

    cdef int drop_collected(self) except -1:
        cdef ContentFile content = self.collected
        if content is not None:
            self.collected = None
            content.end()
        return 0

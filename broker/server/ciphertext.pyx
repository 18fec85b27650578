# cython: language_level=3
"""What is between the sockets of TLS connections and OpenSSL: one pair of buffers in memory for all
connections, and one that they are received into.

The buffers are empty but for the time in which one connection is deciphered or enciphered. So one
that is closed meanwhile by what another one sent finds nothing of that one's in them, and an idle
connection costs what OpenSSL keeps of its keys.
"""

import ssl

from cpython.buffer cimport PyBUF_READ, PyBUF_WRITE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.string cimport memcpy

from broker.kernel.octets cimport Octets, octets, writable_octets


cdef enum:
    RECORD_MAX = 16 * 1024       # bytes of a record's text (RFC 8446, section 5.1)
    SHORT = 2048                 # copying so much costs less than an object that says where to

cdef object WantRead = ssl.SSLWantReadError


cdef class Ciphertext:
    """`plain` is the buffer that is deciphered into. `received` is what is received into: smaller,
    since the rest of an earlier record may come with a chunk. `has_ended`: the last one that was
    deciphered has said goodbye (close_notify)."""

    cdef readonly object incoming
    cdef readonly object outgoing
    cdef readonly object received
    cdef readonly bint has_ended
    cdef Octets cipher
    cdef Octets plain
    cdef Octets record               # for short ones
    cdef tuple into_record           # what `read` gets then

    def __init__(self, plain):
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.plain = writable_octets(plain)
        self.received = memoryview(bytearray(self.plain.length - 2 * RECORD_MAX))
        self.cipher = writable_octets(self.received)
        record = bytearray(RECORD_MAX)
        self.record = writable_octets(record)
        self.into_record = (RECORD_MAX, record)

    def put(self, size_t length):
        """Gives OpenSSL the first `length` bytes of `received`."""
        self.has_ended = False
        self.drain()
        self.incoming.write(PyMemoryView_FromMemory(<char*> self.cipher.data, length, PyBUF_READ))

    cdef int drain(self) except -1:
        """Nothing that an unexpected error of another connection has left goes to this one."""
        if self.incoming.pending:
            self.incoming.read()
        if self.outgoing.pending:
            self.outgoing.read()
        return 0

    def decipher(self, read):
        """Deciphers what was put; `read` is the connection's. Returns how many bytes are now in
        `plain`. Raises SSLError; the rest is left in `incoming` then, and if it `has_ended`."""
        cdef size_t filled = 0
        cdef size_t got, room
        cdef bint is_short = True    # as the one before
        # With nothing pending a read would only raise that it wants more.
        while self.incoming.pending:
            room = min(<size_t> RECORD_MAX, self.plain.length - filled)
            try:
                if is_short and room == RECORD_MAX:
                    got = read(*self.into_record)
                    memcpy(self.plain.data + filled, self.record.data, got)
                else:
                    got = read(RECORD_MAX, PyMemoryView_FromMemory(
                        <char*> self.plain.data + filled, room, PyBUF_WRITE))
            except WantRead:
                break
            if got == 0:
                self.has_ended = True
                break
            filled += got
            is_short = got <= SHORT
        return filled

    def encipher(self, write, data):
        """Returns bytes of any length as records; `write` is the connection's. Raises SSLError."""
        cdef Octets text = octets(data)
        cdef size_t at = 0
        cdef size_t length
        self.drain()
        while at < text.length:
            length = min(<size_t> RECORD_MAX, text.length - at)
            at += <size_t> write(
                PyMemoryView_FromMemory(<char*> text.data + at, length, PyBUF_READ))
        return self.outgoing.read()

# cython: language_level=3
"""The memory of an object with a buffer (bytes, bytearray, array, memoryview), for C code.

Cython's typed memoryviews would do the same, but each module that has one compiles 15,000 more
lines of C.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer,
)


@cython.final
@cython.freelist(8)
cdef class Octets:
    """Holds the buffer of its source: the memory neither moves nor is freed while this lives."""

    def __dealloc__(self):
        PyBuffer_Release(&self.view)


cdef Octets octets(object source):
    """The memory of `source`, which is not to be changed. Raises TypeError without a buffer, and
    BufferError if its bytes do not lie one behind the other."""
    return _held(source, PyBUF_SIMPLE)


cdef Octets writable_octets(object source):
    """Like `octets`; raises BufferError, too, if the memory must not be written."""
    return _held(source, PyBUF_WRITABLE)


cdef Octets _held(object source, int flags):
    cdef Octets found = Octets.__new__(Octets)
    PyObject_GetBuffer(source, &found.view, flags)
    found.data = <uint8_t*> found.view.buf
    found.length = <size_t> found.view.len
    return found

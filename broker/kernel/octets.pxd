from cpython.buffer cimport Py_buffer
from libc.stdint cimport uint8_t


cdef class Octets:
    cdef Py_buffer view
    cdef uint8_t* data
    cdef size_t length


cdef Octets octets(object source)
cdef Octets writable_octets(object source)

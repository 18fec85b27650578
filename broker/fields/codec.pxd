from libc.stdint cimport uint8_t, uint64_t


cdef class Reader:
    cdef bytes data
    cdef public Py_ssize_t at
    cdef readonly Py_ssize_t end
    cdef Py_ssize_t elements         # values of tables and arrays so far

    cdef const uint8_t* skip(self, Py_ssize_t count) except NULL
    cdef str text_of(self, Py_ssize_t size)
    cpdef bytes take(self, Py_ssize_t size)
    cdef uint64_t number(self, int size) except? 0xFFFFFFFFFFFFFFFF
    cpdef uint64_t unsigned(self, int size) except? 0xFFFFFFFFFFFFFFFF
    cpdef str short_string(self)
    cpdef bytes long_string(self)
    cpdef dict table(self, int depth=*)
    cpdef list array(self, int depth=*)
    cpdef value(self, int depth)
    cdef rare(self, uint8_t kind)


cdef class Writer:
    cdef Py_ssize_t elements

    cdef bytes table(self, table, int depth)
    cdef bytes array(self, array, int depth)
    cdef bytes value(self, value, int depth)

from libc.stdint cimport uint32_t


cdef class Method:
    cdef readonly int class_id
    cdef readonly int method_id
    cdef readonly str name
    cdef readonly tuple fields
    cdef readonly bint from_client   # a client may send it
    cdef readonly uint32_t index     # class and method id as they begin a payload
    cdef readonly bytes kinds        # a letter of `KINDS` for each field
    cdef readonly tuple names        # of the fields; None where one is reserved

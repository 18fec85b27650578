# Whether this fault is planted; never in the product, where it costs nothing (see the header).
cdef extern from "broker/store/files/planted.h" nogil:
    bint planted(const char* fault)

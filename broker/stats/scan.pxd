cdef int read_queue(object thing, double* row, double* signs) except -1
cdef int count_channel(object thing, double* row) except -1

cdef int read_queue(object thing, double* row, double* signs) except -1

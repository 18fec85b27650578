from broker.kernel.threads cimport pthread_cond_t, pthread_mutex_t


cdef class ReadAhead:
    cdef list directories            # their paths, encoded; `paths` points into them
    cdef const char** paths
    cdef size_t count
    cdef size_t next                 # the first directory that no thread has taken
    cdef size_t reached              # how many the reader has behind it
    cdef bint stopping
    cdef list threads
    cdef pthread_mutex_t mutex
    cdef pthread_cond_t going_on

    cdef void loop(self) noexcept nogil

from broker.store.disk cimport Op


cdef int punch(Op* op) noexcept nogil

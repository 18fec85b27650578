from broker.store.files.operation cimport Op


cdef int punch(Op* op) noexcept nogil

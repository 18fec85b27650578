from broker.store.files.operation cimport Op


cdef void enter() noexcept nogil
cdef bint enter_if_open() noexcept nogil
cdef void leave() noexcept nogil
cdef bint alters(Op* op) noexcept nogil
cdef bint holes_held() noexcept nogil

from libc.stdint cimport uint64_t


cdef struct Observer:
    # Before an operation of this kind: the errno that it is refused with, or 0.
    int (*before)(int kind, const char* path) noexcept nogil
    # After an operation, with its number; for one that alters nothing `data` is NULL. Of a rename
    # and a link `data` is the old name.
    void (*after)(uint64_t number, int kind, const char* path, uint64_t offset, uint64_t length,
                  int error, const void* data, size_t data_length) noexcept nogil
    # Something that is no operation on a file, such as a confirm that leaves its channel.
    void (*mark)(const char* what, uint64_t number) noexcept nogil
    # Reads of what the page cache holds are to become operations of a thread, too.
    bint every_read


cdef Observer* observer
cdef int refused(int kind, const char* path) noexcept nogil
cdef void observed(int kind, const char* path, uint64_t offset, uint64_t length, int error,
                   const void* data, size_t data_length) noexcept nogil
cdef void marked(const char* what, uint64_t number) noexcept nogil

# cython: language_level=3
"""The observer of the file system: told of every operation of the store, from its threads.

Compiled code can set one at a time. It may refuse an operation before it begins, as a node that
must not write any more has to, and is told of each in the order of their completion. Without an
observer an operation costs a look at a pointer.
"""

from libc.stdint cimport uint64_t


# The names of the operations: those of `broker.store.files.disk.Op` by their number, and two that
# only the plain functions of `disk` have.
KINDS = (
    "mkdir", "open", "write", "write", "write", "sync", "sync_directory", "sync_file_system",
    "close", "unlink", "read", "rmdir", "punch", "write_file", "write", "rename", "truncate",
    "write_content",
)

cdef Observer* observer = NULL


cdef int refused(int kind) noexcept nogil:
    """The errno that the observer refuses this operation with, or 0."""
    cdef Observer* present = observer
    return present.before(kind) if present != NULL else 0


cdef void observed(int kind, const char* path, uint64_t offset, uint64_t length, int error,
                   const void* data, size_t data_length) noexcept nogil:
    """Tells the observer of an operation that is over."""
    cdef Observer* present = observer
    if present != NULL:
        present.after(kind, path, offset, length, error, data, data_length)


cdef void marked(const char* what, uint64_t number) noexcept nogil:
    """Tells the observer of something that is no operation on a file."""
    cdef Observer* present = observer
    if present != NULL:
        present.mark(what, number)


def mark(str what):
    """Tells the observer of a change of the file system that no operation reports, such as a step
    of the LevelDB library."""
    if observer != NULL:
        encoded = what.encode()
        marked(encoded, 0)

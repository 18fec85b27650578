# cython: language_level=3
"""The observer of the file system: called for every operation of the store, from its threads.

Compiled code can set one at a time. It may refuse an operation before it begins, as a node that
must not write any more has to. It is called for each when it is over and before the gate is left,
one at a time, with consecutive numbers: an operation that began after another one was over has the
greater number. `broker.store.directory.paths` lists the paths that concern another copy of the data
directory. Without an observer an operation costs one comparison of a pointer.
"""

from libc.stdint cimport uint64_t

from broker.kernel.threads cimport (
    pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock,
)


# The names of the operations: those of `broker.store.files.disk.Op` by their number, and one that
# only the plain functions of `disk` have.
KINDS = (
    "mkdir", "open", "write", "write", "write", "sync", "sync_directory", "sync_file_system",
    "close", "unlink", "read", "rmdir", "punch", "write_file", "write", "rename", "truncate",
    "write_content", "link",
)

cdef Observer* observer = NULL
cdef uint64_t told = 0
cdef pthread_mutex_t telling
pthread_mutex_init(&telling, NULL)


cdef int refused(int kind, const char* path) noexcept nogil:
    """The errno that the observer refuses this operation with, or 0."""
    cdef Observer* present = observer
    return present.before(kind, path) if present != NULL else 0


cdef void observed(int kind, const char* path, uint64_t offset, uint64_t length, int error,
                   const void* data, size_t data_length) noexcept nogil:
    """Tells the observer of an operation that is over."""
    global told
    cdef Observer* present
    if observer == NULL:
        return
    pthread_mutex_lock(&telling)
    present = observer
    if present != NULL:
        told += 1
        present.after(told, kind, path, offset, length, error, data, data_length)
    pthread_mutex_unlock(&telling)


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

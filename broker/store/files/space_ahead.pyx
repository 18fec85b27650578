# cython: language_level=3
"""Zeros behind the records of a segment that is written in small, frequent rounds.

A sync of a file that became longer writes the file system's journal, too, which takes more than
half of the time and of the CPU of a small round. So a file with many small rounds in a second gets
zeros ahead of its records, and the next rounds write into them: their syncs write data only.

The zeros are no part of the segment: recovery cuts them, and they are given back when the segment
is sealed, when its queue rests, at a clean stop, and before the lengths of files are noted for a
backup. None are written while files are being copied, or where the disk has little space left.

All but `forget_ahead` is called by the thread that writes, inside the gate, or while that is shut.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from broker.kernel.clock cimport monotonic_ns
from broker.kernel.threads cimport (
    pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock,
)
from broker.store.files.gate cimport holes_held
from broker.store.files.observer cimport observed, refused
from broker.store.files.operation cimport OP_TRUNCATE, OP_WRITE, File, Op
from broker.store.files.space cimport has_space, is_full


cdef extern from "broker/store/files/native.h" nogil:
    int native_errno()
    int native_write_all(int fd, const uint8_t* data, size_t length, uint64_t offset)


cdef extern from "<unistd.h>" nogil:
    int c_truncate "truncate"(const char* path, uint64_t length)


cdef extern from "<errno.h>" nogil:
    int ENOENT


cdef enum:
    SMALL = 16 << 10             # bytes of a round; a sync of more takes its time anyway
    MOST = 1 << 20               # of the setting `segment_space_ahead`


# After more than `rounds_before` small rounds in `within_ns` a file gets space ahead.
rounds_before = 16
within_ns = 1000000000

cdef uint8_t zeros[MOST]
cdef pthread_mutex_t listing
pthread_mutex_init(&listing, NULL)
cdef File* first = NULL          # of the files with zeros behind their records


cdef bint is_frequent(File* file) noexcept nogil:
    """Counts a small round; whether the file had many of them in a short time."""
    cdef int64_t now = monotonic_ns()
    if file.small_rounds == 0 or now - file.small_since > within_ns:
        file.small_rounds = 0
        file.small_since = now
    file.small_rounds += 1
    return file.small_rounds > rounds_before


cdef void write_ahead(Op* op) noexcept nogil:
    """Records were written: notes where they end, and puts zeros behind them if that pays."""
    cdef File* file = op.file
    cdef uint64_t length = op.offset + op.length + op.body_length
    cdef int error
    if length > file.written:
        file.written = length
    if not op.extend_by or op.length > SMALL or op.body != NULL or file.written >= op.extend_to:
        file.small_rounds = 0
        return
    if not is_frequent(file) or file.written <= file.ahead:
        return
    # The count begins anew: only a file that is still written often gets more.
    file.small_rounds = 0
    length = min(op.extend_by, <uint64_t> MOST, op.extend_to - file.written)
    if holes_held() or not has_space(file.fd, length):
        return
    error = native_write_all(file.fd, zeros, length, file.written)
    observed(OP_WRITE, file.path, file.written, length, error, zeros, length)
    if error and not is_full(error):
        op.error = error
        return
    enlist(file)
    file.ahead = file.written + length


cdef void give_back(Op* op) noexcept nogil:
    """Cuts the zeros from a file."""
    cdef File* file = op.file
    op.error = cut(file)
    forget_ahead(file)


cdef int cut(File* file) noexcept nogil:
    cdef int error = 0
    if file.ahead > file.written:
        error = refused(OP_TRUNCATE, file.path)
        if error == 0 and c_truncate(file.path, file.written) != 0:
            error = native_errno()
        observed(OP_TRUNCATE, file.path, 0, file.written, error, NULL, 0)
    file.ahead = 0
    # A removed file has nothing to give back.
    return 0 if error == ENOENT else error


cdef void enlist(File* file) noexcept nogil:
    global first
    if file.ahead:
        return
    pthread_mutex_lock(&listing)
    file.before_ahead = NULL
    file.behind_ahead = first
    if first != NULL:
        first.before_ahead = file
    first = file
    pthread_mutex_unlock(&listing)


cdef void forget_ahead(File* file) noexcept nogil:
    """The file has no zeros any more, or is removed."""
    global first
    pthread_mutex_lock(&listing)
    if file.behind_ahead != NULL:
        file.behind_ahead.before_ahead = file.before_ahead
    if file.before_ahead != NULL:
        file.before_ahead.behind_ahead = file.behind_ahead
    elif first == file:
        first = file.behind_ahead
    file.before_ahead = file.behind_ahead = NULL
    pthread_mutex_unlock(&listing)


def give_all_back() -> int:
    """Cuts the zeros from all files, while the gate is shut and `hold_holes` keeps more from being
    written. Returns of how many. Raises OSError."""
    global first
    cdef File* file
    cdef int error = 0
    cdef int count = 0
    with nogil:
        pthread_mutex_lock(&listing)
        while first != NULL and error == 0:
            file = first
            error = cut(file)
            first = file.behind_ahead
            if first != NULL:
                first.before_ahead = NULL
            file.behind_ahead = NULL
            count += 1
        pthread_mutex_unlock(&listing)
    if error:
        raise OSError(error, "cannot cut the space ahead of a segment")
    return count

# cython: language_level=3
"""Space behind the records of a segment that is written in frequent rounds.

A sync of a file that became longer writes the file system's journal, too, which takes more than
half of the time and of the CPU of a small round. So a file with many rounds in a second gets zeros
ahead of its records, and the next rounds write into them: their syncs write data only.

A round for such a file is written with direct I/O, which spares the page cache, and if it is not
large by the kernel alone (`broker.store.commit.direct_writes`). That takes whole blocks, so what
the last one has already is kept in memory (`File.block`). For large rounds, which the writing
thread writes, the space is only reserved: it reads as zeros, too, and the disk has less to write.
`segment_direct_files` says how many files may be open for that; large rounds for others have no
space ahead.

The zeros are no part of the segment: recovery cuts them, and they are given back when the segment
is sealed, when its queue rests, at a clean stop, and before the lengths of files are noted for a
backup. None are written while files are being copied, or where the disk has little space left.

What alters a file is called by the thread that writes, inside the gate, or while that is shut; but
for `forget_ahead`. The loop asks `has_room` while no round has the file; what it reads of the
frequency may be a moment old.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from broker.kernel.clock cimport monotonic_ns
from broker.kernel.threads cimport (
    pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock,
)
from broker.store.files.async_io cimport is_available
from broker.store.files.direct_blocks cimport (
    DIRECT_BYTES, FLIGHT_BYTES, note_blocks, put_blocks, whole_blocks,
)
from broker.store.files.gate cimport holes_held
from broker.store.files.observer cimport observed, observer, refused
from broker.store.files.operation cimport BLOCK_BYTES, OP_TRUNCATE, OP_WRITE, File, Op
from broker.store.files.space cimport has_space, is_full


cdef extern from "broker/store/files/native.h" nogil:
    int native_errno()
    int native_write_all(int fd, const uint8_t* data, size_t length, uint64_t offset)
    int native_reserve(int fd, uint64_t offset, uint64_t length)
    int native_read_all(int fd, uint8_t* data, size_t length, uint64_t offset, size_t* done)


cdef extern from "broker/store/files/native_aio.h" nogil:
    int native_open_direct(const char* path)


cdef extern from "<unistd.h>" nogil:
    int c_close "close"(int fd)
    int c_truncate "truncate"(const char* path, uint64_t length)


cdef enum:
    MOST = 1 << 20               # of the setting `segment_space_ahead`
    ROUNDS = 12                  # for which the space is enough
    LARGE_ROUNDS = 32            # the same, if it is only reserved


cdef extern from *:
    """
    /* Pages that are never written to take no memory. */
    static uint8_t leveret_zeros[1 << 20] __attribute__((aligned(4096)));
    """
    uint8_t zeros "leveret_zeros"[MOST]


cdef extern from "<stdlib.h>" nogil:
    void* aligned_alloc(size_t alignment, size_t size)


cdef extern from "<errno.h>" nogil:
    int EINVAL, EIO, ENOENT, ENOMEM, EOPNOTSUPP


# After more than `rounds_before` rounds in `within_ns` a file gets space ahead.
rounds_before = 16
within_ns = 1000000000

cdef pthread_mutex_t listing
pthread_mutex_init(&listing, NULL)
cdef File* first = NULL          # of the files with zeros behind their records
cdef uint32_t direct_files = 0   # of those, open for direct I/O


cdef bint is_frequent(File* file, size_t length) noexcept nogil:
    """Counts a round; whether the file had many of them in a short time."""
    cdef int64_t now = monotonic_ns()
    # Where short rounds and long ones alternate, the long ones need the space.
    file.usual_length = max(length, file.usual_length - file.usual_length // 8)
    if file.rounds == 0 or now - file.rounds_since > within_ns:
        file.rounds = 0
        file.rounds_since = now
    file.rounds += 1
    return file.rounds > rounds_before


cdef Frequency frequency_of(File* file) noexcept nogil:
    """What the file that follows inherits. The writing thread may be at work on this one."""
    cdef Frequency frequency
    frequency.rounds = 0
    frequency.usual_length = 0
    if file.ahead or monotonic_ns() - file.rounds_since <= within_ns:
        frequency.rounds = rounds_before if file.ahead else file.rounds
        frequency.usual_length = file.usual_length
    return frequency


cdef void inherit_frequency(File* file, Frequency frequency) noexcept nogil:
    """A file follows one that had this. The first round in it may be a short one, whose rest the
    other file has: with space for such ones alone, the next ones would have none."""
    file.rounds = frequency.rounds
    file.usual_length = frequency.usual_length
    file.rounds_since = monotonic_ns()


cdef bint has_room(File* file, size_t length) noexcept nogil:
    """Whether this many bytes of records fit into the space ahead, with all of the block that they
    end in."""
    return whole_blocks(file.written + length) <= file.ahead


cdef bint is_too_large(Op* op) noexcept nogil:
    return op.length > DIRECT_BYTES or op.body != NULL


cdef bint suits(Op* op) noexcept nogil:
    """Whether the records are to be written with direct I/O. What consumers read from the file, as
    they do where they are behind, is wanted in the page cache: of large rounds it would take the
    disk as long to read as to write."""
    return not is_too_large(op) and not (op.is_read_back and op.length > FLIGHT_BYTES)


cdef bint is_direct(Op* op) noexcept nogil:
    """Whether the records can be written as whole blocks, into space that is there."""
    return (op.file.direct_fd >= 0 and suits(op)
            and op.offset == op.file.written and has_room(op.file, op.length)
            and (not op.file.is_block_old or read_block(op.file)))


cdef void write_direct(Op* op) noexcept nogil:
    """Writes sealed records with direct I/O: the page cache would have to read their block first,
    and the next round could not be written without a thread while it has pages of that."""
    # Not `aligned_alloc`: of each of its blocks a part stays behind, so that the next one is taken
    # from new memory. Of blocks of 1 MiB, freed one after the other, 17 MiB were kept.
    cdef uint8_t* memory = <uint8_t*> malloc(whole_blocks(op.length) + 2 * BLOCK_BYTES)
    cdef uint8_t* blocks = memory + (BLOCK_BYTES - <size_t> memory % BLOCK_BYTES) % BLOCK_BYTES
    cdef size_t length
    if memory == NULL:
        op.error = ENOMEM
        return
    length = put_blocks(op, 1, blocks)
    op.error = native_write_all(
        op.file.direct_fd, blocks, length, op.offset - op.offset % BLOCK_BYTES)
    if op.error == 0:
        note_blocks(op, 1, blocks)
    elif op.error == EINVAL or op.error == EOPNOTSUPP:
        # The disk has larger blocks than ours, or the file system opens files so and no more.
        op.file.refuses_direct = True
        forget_direct(op.file)
        op.error = native_write_all(op.file.fd, op.data, op.length, op.offset)
    free(memory)


cdef void make_room(Op* op) noexcept nogil:
    """Before records are written: gives their file space ahead if that pays and they, or as long a
    round behind them, would need it."""
    cdef File* file = op.file
    cdef uint64_t behind = op.offset + op.length
    cdef uint64_t end, wanted
    if is_too_large(op):
        file.rounds = 0
        return
    if not suits(op):
        # Counted all the same: when consumers have caught up, the next one has space at once.
        is_frequent(file, op.length)
        return
    if not file.ahead and op.offset != file.written:
        # It was opened anew.
        file.written = op.offset
        file.is_block_old = True
    if not op.extend_by or behind >= op.extend_to or op.offset != file.written:
        return
    if not is_frequent(file, op.length) or has_room(file, op.length + file.usual_length):
        return
    # Only a file that is still written often gets more.
    file.rounds = rounds_before // 2
    if file.usual_length > FLIGHT_BYTES:
        wanted = max(<uint64_t> MOST, LARGE_ROUNDS * file.usual_length)
    else:
        wanted = min(
            op.length + max(op.extend_by, ROUNDS * file.usual_length), <uint64_t> MOST)
    end = min(file.written + wanted, op.extend_to)
    end -= end % BLOCK_BYTES
    if end > max(behind, file.ahead) and not holes_held() and has_space(
            file.fd, end - file.written):
        extend(op, end)


cdef void note_end(Op* op) noexcept nogil:
    """Records were written: notes where they end."""
    cdef File* file = op.file
    cdef uint64_t end = op.offset + op.length + op.body_length
    if end != file.written:
        # Not by `write_direct`.
        file.written = end
        file.is_block_old = True


cdef void extend(Op* op, uint64_t end) noexcept nogil:
    """Gives a file space behind its records up to `end`, which is the end of a block: zeros, or for
    large rounds space that is only reserved. Without direct I/O those gain nothing by it."""
    cdef File* file = op.file
    cdef uint64_t zeros_from = max(file.ahead, file.written)
    # Of the block that the records end in, `write_direct` writes the rest.
    cdef uint64_t start = whole_blocks(zeros_from)
    cdef bint is_new = file.direct_fd < 0
    cdef bint is_large = file.usual_length > FLIGHT_BYTES
    cdef int error = EINVAL
    if is_new:
        open_direct(op)
    if file.direct_fd >= 0:
        if is_large:
            # In the last block of a segment there is nothing to reserve.
            error = native_reserve(file.fd, start, end - start) if end > start else 0
        else:
            error = native_write_all(file.direct_fd, zeros, end - start, start)
    if error and error != EIO and not is_full(error):
        # Some file systems have no such calls, and what guards a container may forbid them, each
        # with an error of its own.
        forget_direct(file)
        if is_large:
            return
        error = native_write_all(file.fd, zeros, end - zeros_from, zeros_from)
    tell_zeros(file, zeros_from, end, error)
    if error == 0:
        enlist(file)
        file.ahead = end
        file.is_reserved = is_large or (file.is_reserved and not is_new)
    elif error == EIO:
        op.error = error
    # The write of the records reports any other one, if it concerns that.


cdef void tell_zeros(File* file, uint64_t start, uint64_t end, int error) noexcept nogil:
    """Tells the observer what the file reads as now. A kill may leave a part of it."""
    cdef uint64_t length
    while observer != NULL and start < end:
        length = min(end - start, <uint64_t> MOST)
        observed(OP_WRITE, file.path, start, length, error, zeros, length)
        start += length


cdef void open_direct(Op* op) noexcept nogil:
    """Opens a file for direct I/O as well, where the kernel has that."""
    global direct_files
    cdef File* file = op.file
    if not op.direct_files or file.refuses_direct or not is_available():
        return
    pthread_mutex_lock(&listing)
    if direct_files < op.direct_files:
        file.block = <uint8_t*> aligned_alloc(BLOCK_BYTES, BLOCK_BYTES)
        if file.block != NULL:
            file.direct_fd = native_open_direct(file.path)
        if file.direct_fd >= 0:
            direct_files += 1
            file.is_block_old = True
        else:
            free(file.block)
            file.block = NULL
    pthread_mutex_unlock(&listing)


cdef bint read_block(File* file) noexcept nogil:
    """Reads the last block of the records, which the page cache still has."""
    cdef size_t done = 0
    if native_read_all(file.fd, file.block, BLOCK_BYTES,
                       file.written - file.written % BLOCK_BYTES, &done):
        # The reading thread finds this out, too, and reports it.
        forget_direct(file)
        return False
    memset(file.block + done, 0, BLOCK_BYTES - done)
    file.is_block_old = False
    return True


cdef void forget_direct(File* file) noexcept nogil:
    pthread_mutex_lock(&listing)
    close_direct(file)
    pthread_mutex_unlock(&listing)


cdef void close_direct(File* file) noexcept nogil:
    global direct_files
    if file.direct_fd >= 0:
        c_close(file.direct_fd)
        file.direct_fd = -1
        direct_files -= 1
    free(file.block)
    file.block = NULL


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
    file.is_reserved = False
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
    close_direct(file)
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
            close_direct(file)
            count += 1
        pthread_mutex_unlock(&listing)
    if error:
        raise OSError(error, "cannot cut the space ahead of a segment")
    return count

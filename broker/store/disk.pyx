# cython: language_level=3
"""The only door to the file system.

Everything the store does to a file is one `Op`, run by a thread of the store (`run_op`), or one of
the plain functions below, for start, stop and definitions. Both pass the same two turnstiles:
failpoints, which make the n-th call of a kind fail, and the recorder, which writes down what
happened in which order so that tests can check orders and enumerate crash states.
"""

import contextlib
import errno as _errno
import fcntl
import os

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport strdup

from broker.store.record cimport ACK_BYTES, AckEntry, RecordHead, ack_check, record_check


cdef extern from "broker/store/native.h" nogil:
    ssize_t native_read_now(int fd, void* data, size_t length, uint64_t offset)
    int native_errno()
    int native_write_all(int fd, const uint8_t* data, size_t length, uint64_t offset)
    int native_read_all(int fd, uint8_t* data, size_t length, uint64_t offset, size_t* done)
    int native_sync_directory(const char* path)
    int native_sync_file_system(const char* path)


cdef extern from "<fcntl.h>" nogil:
    int c_open "open"(const char* path, int flags, int mode)
    int O_RDWR, O_CREAT, O_CLOEXEC


cdef extern from "<unistd.h>" nogil:
    int c_close "close"(int fd)
    int c_unlink "unlink"(const char* path)
    int c_rmdir "rmdir"(const char* path)
    int c_fdatasync "fdatasync"(int fd)


cdef extern from "<sys/stat.h>" nogil:
    int c_mkdir "mkdir"(const char* path, int mode)


cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    int pthread_mutex_init(pthread_mutex_t* mutex, void* attributes)
    int pthread_mutex_lock(pthread_mutex_t* mutex)
    int pthread_mutex_unlock(pthread_mutex_t* mutex)


KINDS = (
    "mkdir", "open", "write", "write", "write", "sync", "sync_directory", "sync_file_system",
    "close", "unlink", "read", "rmdir",
)

# -- failpoints and recorder -----------------------------------------------------------------------

cdef struct Event:
    char* kind
    char* path
    uint64_t offset
    uint64_t length
    int error


cdef pthread_mutex_t guard
pthread_mutex_init(&guard, NULL)
cdef int recording = 0
cdef Event* events = NULL
cdef size_t event_count = 0
cdef size_t event_capacity = 0
cdef int failpoints = 0
cdef long fail_after[12]
cdef int fail_errno[12]


cdef void record_event(const char* kind, const char* path, uint64_t offset, uint64_t length,
                       int error) noexcept nogil:
    global events, event_count, event_capacity
    cdef Event* grown
    pthread_mutex_lock(&guard)
    if event_count == event_capacity:
        event_capacity = event_capacity * 2 if event_capacity else 1024
        grown = <Event*> realloc(events, event_capacity * sizeof(Event))
        if grown == NULL:
            pthread_mutex_unlock(&guard)
            return
        events = grown
    events[event_count].kind = strdup(kind)
    events[event_count].path = strdup(path) if path != NULL else NULL
    events[event_count].offset = offset
    events[event_count].length = length
    events[event_count].error = error
    event_count += 1
    pthread_mutex_unlock(&guard)


cdef void record_mark(const char* kind, uint64_t number) noexcept nogil:
    """Notes something that is not a file operation, such as a confirm's bytes leaving the
    channel."""
    record_event(kind, NULL, number, 0, 0)


cdef int failing(int kind) noexcept nogil:
    """The errno that this call of `kind` has to fail with, or 0."""
    if not failpoints:
        return 0
    cdef int error = 0
    pthread_mutex_lock(&guard)
    if fail_after[kind] > 0:
        fail_after[kind] -= 1
        if fail_after[kind] == 0:
            error = fail_errno[kind]
    pthread_mutex_unlock(&guard)
    return error


def record(bint on):
    """Starts an empty recording, or ends one."""
    global recording, event_count
    cdef size_t i
    pthread_mutex_lock(&guard)
    for i in range(event_count):
        free(events[i].kind)
        free(events[i].path)
    event_count = 0
    recording = on
    pthread_mutex_unlock(&guard)


def recorded() -> list:
    """The recording so far: tuples (kind, path or None, offset or number, length, errno), in the
    order of their completion."""
    cdef size_t i
    rows = []
    pthread_mutex_lock(&guard)
    for i in range(event_count):
        rows.append((
            events[i].kind.decode(),
            None if events[i].path == NULL else os.fsdecode(<bytes> events[i].path),
            events[i].offset, events[i].length, events[i].error))
    pthread_mutex_unlock(&guard)
    return rows


def fail(str kind, long nth, int error):
    """Lets the n-th call of `kind` from now (1 = the next) fail with `error`; n = 0 takes the
    failpoint away."""
    global failpoints
    pthread_mutex_lock(&guard)
    for index, name in enumerate(KINDS):
        if name == kind:
            fail_after[index] = nth
            fail_errno[index] = error
    failpoints = any(fail_after[i] for i in range(12))
    pthread_mutex_unlock(&guard)


# -- operations of the store's threads -------------------------------------------------------------

cdef File* file_new(str path) except NULL:
    """A file that is not open yet; it need not exist."""
    cdef File* file = <File*> calloc(1, sizeof(File))
    if file == NULL:
        raise MemoryError("no memory for a file")
    encoded = os.fsencode(path)
    file.path = strdup(<char*> encoded)
    file.fd = -1
    return file


cdef void file_close(File* file) noexcept:
    """Closes a file without unsynced bytes; that never waits for the disk."""
    if file.fd >= 0:
        c_close(file.fd)
        file.fd = -1


cdef void file_free(File* file) noexcept:
    if file != NULL:
        if file.fd >= 0:
            c_close(file.fd)
        free(file.path)
        free(file)


cdef void seal_records(Op* op) noexcept nogil:
    cdef size_t at = 0
    cdef RecordHead* head
    while at < op.length:
        head = <RecordHead*> (op.data + at)
        head.check = record_check(
            op.data + at, op.incarnation, op.segment, <uint32_t> (op.offset + at))
        at += head.length + 4


cdef void seal_acks(Op* op) noexcept nogil:
    cdef size_t at = 0
    cdef AckEntry* entry
    while at < op.length:
        entry = <AckEntry*> (op.data + at)
        entry.check = ack_check(entry, op.incarnation, op.segment)
        at += ACK_BYTES


cdef void run_op(Op* op) noexcept nogil:
    """Carries out one operation and leaves its errno in `error`. Called without Python's lock."""
    cdef const char* path = op.path
    if op.file != NULL:
        path = op.file.path
    op.error = failing(op.kind)
    if op.error == 0:
        if op.kind == OP_WRITE_RECORDS or op.kind == OP_WRITE or op.kind == OP_WRITE_ACKS:
            if op.kind == OP_WRITE_RECORDS:
                seal_records(op)
            elif op.kind == OP_WRITE_ACKS:
                seal_acks(op)
            op.error = native_write_all(op.file.fd, op.data, op.length, op.offset)
        elif op.kind == OP_SYNC:
            if c_fdatasync(op.file.fd) != 0:
                op.error = native_errno()
        elif op.kind == OP_READ:
            op.error = native_read_all(op.file.fd, op.data, op.length, op.offset, &op.done)
        elif op.kind == OP_OPEN:
            if op.file.fd < 0:
                op.file.fd = c_open(op.file.path, O_RDWR | O_CREAT | O_CLOEXEC, 0o640)
                if op.file.fd < 0:
                    op.error = native_errno()
        elif op.kind == OP_MKDIR:
            if c_mkdir(op.path, 0o750) != 0 and native_errno() != 17:
                op.error = native_errno()
        elif op.kind == OP_SYNC_DIRECTORY:
            op.error = native_sync_directory(op.path)
            if op.error == 2:
                # Its queue was deleted meanwhile: nothing is left to sync.
                op.error = 0
        elif op.kind == OP_SYNC_FILE_SYSTEM:
            op.error = native_sync_file_system(op.path)
        elif op.kind == OP_CLOSE:
            if op.file.fd >= 0:
                c_close(op.file.fd)
                op.file.fd = -1
        elif op.kind == OP_UNLINK:
            if c_unlink(path) != 0 and native_errno() != 2:
                op.error = native_errno()
        elif op.kind == OP_RMDIR:
            if c_rmdir(op.path) != 0 and native_errno() not in (2, 39):
                op.error = native_errno()
    if recording:
        record_event(kind_name(op.kind), path, op.offset, op.length, op.error)


cdef const char* kind_name(int kind) noexcept nogil:
    if kind == OP_MKDIR:
        return b"mkdir"
    if kind == OP_OPEN:
        return b"open"
    if kind == OP_SYNC:
        return b"sync"
    if kind == OP_SYNC_DIRECTORY:
        return b"sync_directory"
    if kind == OP_SYNC_FILE_SYSTEM:
        return b"sync_file_system"
    if kind == OP_CLOSE:
        return b"close"
    if kind == OP_UNLINK:
        return b"unlink"
    if kind == OP_READ:
        return b"read"
    if kind == OP_RMDIR:
        return b"rmdir"
    return b"write"


cdef ssize_t read_now(int fd, void* data, size_t length, uint64_t offset) noexcept nogil:
    """Reads what the page cache holds. Negative: the disk would have to be asked, or there is an
    error; a reader thread finds out."""
    return native_read_now(fd, data, length, offset)


# -- plain functions, for start, stop, definitions and the usage feed ------------------------------

def _pass(kind: str, path: str, length: int = 0) -> None:
    """Turnstile of the functions below."""
    error = 0
    for index, name in enumerate(KINDS):
        if name == kind:
            error = failing(index)
            break
    if recording:
        encoded_kind = kind.encode()
        encoded_path = os.fsencode(path)
        record_event(encoded_kind, encoded_path, 0, length, error)
    if error:
        raise OSError(error, os.strerror(error), path)


def exists(path: str) -> bool:
    return os.path.exists(path)


def size(path: str) -> int:
    return os.stat(path).st_size


def read(path: str) -> bytes:
    """The whole file. Raises OSError."""
    _pass("read", path)
    with open(path, "rb") as file:
        return file.read()


def read_part(path: str, offset: int, length: int) -> bytes:
    """`length` bytes from `offset` on, fewer at the end of the file. Raises OSError."""
    _pass("read", path)
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(length)


def listdir(path: str) -> list:
    """Names in a directory, sorted; none if it does not exist."""
    try:
        return sorted(os.listdir(path))
    except FileNotFoundError:
        return []


def makedirs(path: str) -> None:
    """Makes a directory and its parents, and syncs the parents of what it made."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for each in reversed(missing):
        _pass("mkdir", each)
        with contextlib.suppress(FileExistsError):
            os.mkdir(each, 0o750)
        sync_directory(os.path.dirname(each))


def sync_directory(path: str) -> None:
    _pass("sync_directory", path)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_file_system(path: str) -> None:
    _pass("sync_file_system", path)
    encoded = os.fsencode(path)
    cdef const char* where = encoded
    cdef int error
    with nogil:
        error = native_sync_file_system(where)
    if error:
        raise OSError(error, os.strerror(error), path)


def write_atomic(path: str, data: bytes, mode: int = 0o640) -> None:
    """Replaces a file: temporary file, sync, rename, sync of the directory. Raises OSError; the old
    file stays then."""
    temporary = f"{path}.tmp"
    _pass("write", temporary, len(data))
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
        _pass("sync", temporary)
        os.fdatasync(fd)
    finally:
        os.close(fd)
    rename(temporary, path)
    sync_directory(os.path.dirname(path) or ".")


def append(path: str, data: bytes) -> None:
    """Adds bytes at the end of a file, which is made if it is missing. Not synced."""
    _pass("write", path, len(data))
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view):]
    finally:
        os.close(fd)


def rename(old: str, new: str) -> None:
    _pass("rename", new)
    os.replace(old, new)


def truncate(path: str, length: int) -> None:
    _pass("write", path)
    os.truncate(path, length)


def unlink(path: str) -> None:
    """Removes a file; one that is not there is fine."""
    _pass("unlink", path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def remove_tree(path: str) -> None:
    """Removes a directory with all in it, if it is there."""
    if not os.path.isdir(path):
        return
    for name in os.listdir(path):
        each = os.path.join(path, name)
        if os.path.isdir(each) and not os.path.islink(each):
            remove_tree(each)
        else:
            unlink(each)
    _pass("rmdir", path)
    os.rmdir(path)


def lock(path: str) -> int:
    """Takes the exclusive lock file of a data directory; the descriptor keeps it. Raises
    BlockingIOError if another process has it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if error.errno in (_errno.EWOULDBLOCK, _errno.EAGAIN):
            raise BlockingIOError(f"{path} is locked by another process") from None
        raise
    return fd


def usage(path: str) -> tuple:
    """(free bytes for unprivileged users, total bytes) of the file system that holds `path`."""
    state = os.statvfs(path)
    return state.f_bavail * state.f_frsize, state.f_blocks * state.f_frsize

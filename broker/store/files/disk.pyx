# cython: language_level=3
"""All access to the file system.

Everything the store does to a file is one `Op`, run by a thread of the store (`run_op`), or one of
the plain functions below, for start, stop and definitions. `broker.store.files.observer` sees both.
"""

import contextlib
import errno as _errno
import fcntl
import os

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport strdup

from broker.kernel.threads cimport (
    pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock,
)
from broker.store.files import observer as observing
from broker.store.files.async_io cimport wait_for_all
from broker.store.files.file_list cimport unlist
from broker.store.files.gate cimport alters, enter, holes_held, leave
from broker.store.files.gate import altering
from broker.store.files.observer cimport observed, observer, refused
from broker.store.files.operation cimport (
    OP_CLOSE, OP_MKDIR, OP_OPEN, OP_PUNCH, OP_READ, OP_RENAME, OP_RMDIR, OP_SYNC, OP_SYNC_DIRECTORY,
    OP_SYNC_FILE_SYSTEM, OP_TRUNCATE, OP_UNLINK, OP_WRITE, OP_WRITE_ACKS, OP_WRITE_BODIES,
    OP_WRITE_CONTENT, OP_WRITE_FILE, OP_WRITE_RECORDS, File, Op,
)
from broker.store.files.planted cimport planted
from broker.store.files.punch cimport punch
from broker.store.files.body_record cimport body_is_sound
from broker.store.files.record cimport record_is_sound
from broker.store.files.seal cimport seal_acks, seal_bodies, seal_records
from broker.store.files.space cimport give_reserve, has_space, is_full
from broker.store.files.space_ahead cimport (
    forget_ahead, give_back, is_direct, make_room, note_end, write_direct,
)


cdef extern from "broker/store/files/native.h" nogil:
    ssize_t native_read_now(int fd, void* data, size_t length, uint64_t offset)
    int native_errno()
    int native_write_all(int fd, const uint8_t* data, size_t length, uint64_t offset)
    int native_read_all(int fd, uint8_t* data, size_t length, uint64_t offset, size_t* done)
    int native_sync_directory(const char* path)
    int native_sync_file_system(int fd)
    int native_open_directory(const char* path)
    int native_open_nameless(const char* directory, int* fd)
    int native_write_file(const char* path, const uint8_t* data, size_t length)


cdef extern from "<errno.h>" nogil:
    int EAGAIN, ENOSPC


cdef extern from "<fcntl.h>" nogil:
    int c_open "open"(const char* path, int flags, int mode)
    int O_RDWR, O_CREAT, O_CLOEXEC


cdef extern from "<unistd.h>" nogil:
    int c_close "close"(int fd)
    int c_unlink "unlink"(const char* path)
    int c_rmdir "rmdir"(const char* path)
    int c_fdatasync "fdatasync"(int fd)


cdef extern from "<stdio.h>" nogil:
    int c_rename "rename"(const char* old, const char* new)


cdef extern from "<sys/stat.h>" nogil:
    int c_mkdir "mkdir"(const char* path, int mode)


SECTOR = 4096  # of which the disk reads all or nothing

cdef pthread_mutex_t opening
pthread_mutex_init(&opening, NULL)


mark = observing.mark

# -- operations of the store's threads -------------------------------------------------------------

cdef File* file_new(str path) except NULL:
    """A file that is not open yet; it need not exist."""
    cdef File* file = <File*> calloc(1, sizeof(File))
    if file == NULL:
        raise MemoryError("no memory for a file")
    encoded = os.fsencode(path)
    file.path = strdup(<char*> encoded)
    file.fd = file.direct_fd = -1
    return file


cdef void file_close(File* file) noexcept:
    """Closes a file without unsynced bytes; that never waits for the disk."""
    if file.fd >= 0:
        c_close(file.fd)
        file.fd = -1


cdef void file_free(File* file) noexcept:
    """No list has the file any more."""
    if file != NULL:
        if file.busy and file.direct_fd >= 0:
            # A broker that ends in the middle: what the kernel does is noted in the file.
            wait_for_all()
        unlist(&file.opened)
        unlist(&file.unsynced)
        forget_ahead(file)
        if file.fd >= 0:
            c_close(file.fd)
        free(file.path)
        free(file)


cdef void close_now(File* file) noexcept nogil:
    """In a thread: the file has no other operations in flight."""
    if file != NULL and file.fd >= 0:
        c_close(file.fd)
        file.fd = -1


cdef int directory_open(File* file) noexcept nogil:
    """Opens a directory, if it is not open yet, and returns the errno."""
    if file.fd < 0:
        file.fd = native_open_directory(file.path)
    return native_errno() if file.fd < 0 else 0


cdef bint is_left_out(int kind) noexcept nogil:
    """Whether a planted fault leaves operations of this kind out."""
    if planted(b"no sync"):
        return kind == OP_SYNC or kind == OP_SYNC_FILE_SYSTEM
    if planted(b"no directory sync"):
        return kind == OP_SYNC_DIRECTORY or kind == OP_SYNC_FILE_SYSTEM
    return False


cdef void seal(Op* op) noexcept nogil:
    """Gives records and acks entries their checks, before they are written."""
    if op.kind == OP_WRITE_RECORDS:
        seal_records(op)
    elif op.kind == OP_WRITE_ACKS:
        seal_acks(op)
    elif op.kind == OP_WRITE_BODIES:
        seal_bodies(op)


cdef void write_op(Op* op) noexcept nogil:
    """Seals and writes what the operation has."""
    if op.is_written:
        return
    seal(op)
    if op.kind == OP_WRITE_RECORDS:
        make_room(op)
        if op.error != 0:
            return
    if op.kind == OP_WRITE_RECORDS and is_direct(op):
        write_direct(op)
    else:
        op.error = native_write_all(op.file.fd, op.data, op.length, op.offset)
    if op.body != NULL and op.error == 0:
        op.error = native_write_all(op.file.fd, op.body, op.body_length, op.offset + op.length)
    op.file.is_unsynced = True
    if op.kind == OP_WRITE_RECORDS and op.error == 0:
        note_end(op)


cdef void read_op(Op* op) noexcept nogil:
    """Reads, and checks a record."""
    op.error = native_read_all(op.file.fd, op.data, op.length, op.offset, &op.done)
    if op.is_body and op.error == 0:
        op.is_sound = body_is_sound(op.data, op.done, op.length, op.incarnation)
    elif op.is_record and op.error == 0:
        op.is_sound = record_is_sound(
            op.data, op.done, op.incarnation, op.segment, <uint32_t> op.offset)


cdef void perform(Op* op, const char* path) noexcept nogil:
    if (op.kind == OP_WRITE_RECORDS or op.kind == OP_WRITE or op.kind == OP_WRITE_ACKS
            or op.kind == OP_WRITE_BODIES):
        write_op(op)
    elif op.kind == OP_SYNC:
        if c_fdatasync(op.file.fd) != 0:
            op.error = native_errno()
    elif op.kind == OP_READ:
        read_op(op)
    elif op.kind == OP_OPEN:
        # Two threads may want the same file.
        pthread_mutex_lock(&opening)
        if op.file.fd < 0:
            op.file.fd = c_open(op.file.path, O_RDWR | O_CREAT | O_CLOEXEC, 0o640)
            if op.file.fd < 0:
                op.error = native_errno()
        pthread_mutex_unlock(&opening)
    elif op.kind == OP_MKDIR:
        if c_mkdir(op.path, 0o750) != 0 and native_errno() != 17:
            op.error = native_errno()
    elif op.kind == OP_SYNC_DIRECTORY:
        op.error = native_sync_directory(op.path)
        if op.error == 2:
            # Its queue was deleted: there is no file to sync.
            op.error = 0
    elif op.kind == OP_SYNC_FILE_SYSTEM:
        op.error = directory_open(op.file)
        if op.error == 0:
            op.error = native_sync_file_system(op.file.fd)
    elif op.kind == OP_CLOSE:
        close_now(op.file)
    elif op.kind == OP_UNLINK:
        if c_unlink(path) != 0 and native_errno() != 2:
            op.error = native_errno()
        # The last close gives back what the kernel has of the file, milliseconds for a segment.
        if op.file != NULL:
            forget_ahead(op.file)
        close_now(op.file)
    elif op.kind == OP_RMDIR:
        if c_rmdir(op.path) != 0 and native_errno() not in (2, 39):
            op.error = native_errno()
    elif op.kind == OP_RENAME:
        if c_rename(<const char*> op.data, path) != 0:
            op.error = native_errno()
    elif op.kind == OP_PUNCH:
        op.error = EAGAIN if holes_held() else punch(op)
    elif op.kind == OP_TRUNCATE:
        give_back(op)
    elif op.kind == OP_WRITE_FILE:
        op.error = native_write_file(op.path, op.data, op.length)
    elif op.kind == OP_WRITE_CONTENT:
        if op.file.fd < 0:
            op.error = native_open_nameless(op.file.path, &op.file.fd)
        if op.error == 0 and not has_space(op.file.fd, op.length):
            op.error = ENOSPC
        if op.error == 0:
            op.error = native_write_all(op.file.fd, op.data, op.length, op.offset)


cdef void tell(Op* op, const char* path) noexcept nogil:
    """Tells the observer of an operation that is over."""
    # `punch` tells of each hole, `give_back` of what it cuts; contents lie in files without a name.
    if (observer == NULL or op.kind == OP_PUNCH or op.kind == OP_TRUNCATE
            or op.kind == OP_WRITE_CONTENT):
        return
    if op.kind == OP_READ:
        observed(op.kind, path, op.offset, op.length, op.error, NULL, 0)
    else:
        observed(op.kind, path, op.offset, op.length, op.error, op.data, op.length)
        if op.body != NULL:
            observed(op.kind, path, op.offset + op.length, op.body_length, op.error, op.body,
                     op.body_length)


cdef void run_op(Op* op) noexcept nogil:
    """Carries out one operation and leaves its errno in `error`. Called without Python's lock."""
    cdef const char* path = op.path
    if op.file != NULL:
        path = op.file.path
    if is_left_out(op.kind):
        return
    # A truncation is asked for when there is something to cut, which is known inside the gate.
    op.error = 0 if op.kind == OP_TRUNCATE else refused(op.kind, path)
    if op.error:
        tell(op, path)
    elif alters(op):
        enter()
        perform(op, path)
        tell(op, path)
        leave()
    else:
        perform(op, path)
        tell(op, path)
    if op.error == ENOSPC and planted(b"ignore a full disk"):
        op.error = 0


cdef ssize_t read_now(int fd, void* data, size_t length, uint64_t offset) noexcept nogil:
    """Reads what the page cache holds. Negative: the disk would have to be asked, or there is an
    error; a reader thread finds out."""
    if observer != NULL and observer.every_read:
        return -1
    return native_read_now(fd, data, length, offset)


# -- plain functions, for start, stop, definitions and the usage feed ------------------------------

def _refuse(kind: str, path: str) -> None:
    """Before an operation of the functions below: raises OSError if the observer refuses it, and
    tells it of that."""
    if observer == NULL:
        return
    encoded_path = os.fsencode(path)
    error = refused(observing.KINDS.index(kind), encoded_path)
    if error:
        _tell(kind, path, error=error)
        raise OSError(error, os.strerror(error), path)


def _tell(kind: str, path: str, length: int = 0, offset: int = 0, data: bytes = b"",
          error: int = 0) -> None:
    """After an operation; of one that alters something, while the gate is still held for it."""
    cdef const char* content = data
    if observer != NULL:
        encoded_path = os.fsencode(path)
        observed(observing.KINDS.index(kind), encoded_path, offset, length, error, content,
                 <size_t> len(data))


@contextlib.contextmanager
def _altering(kind: str, path: str, length: int = 0, offset: int = 0, data: bytes = b""):
    """Around one operation that alters something: asks the observer, passes the gate, tells."""
    _refuse(kind, path)
    with altering():
        try:
            yield
        except OSError as error:
            _tell(kind, path, length, offset, data, error.errno or _errno.EIO)
            raise
        _tell(kind, path, length, offset, data)


def exists(path: str) -> bool:
    return os.path.exists(path)


def size(path: str) -> int:
    return os.stat(path).st_size


def allocated(path: str) -> int:
    """Bytes that the file occupies on the disk; holes take none."""
    return os.stat(path).st_blocks * 512


def read(path: str) -> bytes:
    """The whole file. Raises OSError."""
    _refuse("read", path)
    with open(path, "rb") as file:
        content = file.read()
    _tell("read", path)
    return content


def read_part(path: str, offset: int, length: int) -> bytes:
    """`length` bytes from `offset` on, fewer at the end of the file. Raises OSError."""
    _refuse("read", path)
    with open(path, "rb") as file:
        file.seek(offset)
        content = file.read(length)
    _tell("read", path)
    return content


def read_readable(path: str) -> tuple:
    """(content, how many bytes of it could not be read) of a file that the disk reads only in
    parts; unread bytes are 0xFF. Raises OSError if the error does not concern the file."""
    try:
        return read(path), 0
    except OSError as error:
        if error.errno != _errno.EIO:
            raise
    parts = []
    unread = 0
    end = size(path)
    for at in range(0, end, SECTOR):
        wanted = min(SECTOR, end - at)
        try:
            part = read_part(path, at, wanted)
        except OSError as error:
            if error.errno != _errno.EIO:
                raise
            part = b""
        unread += wanted - len(part)
        parts.append(part + b"\xff" * (wanted - len(part)))
    return b"".join(parts), unread


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
        _make_directory(each)
        sync_directory(os.path.dirname(each))


def make_all(paths) -> None:
    """Makes directories, of which parents come before what is in them, and then syncs each parent
    once."""
    parents = {}
    for path in paths:
        _make_directory(path)
        parents[os.path.dirname(path)] = None
    for parent in parents:
        sync_directory(parent)


def _make_directory(path: str) -> None:
    with contextlib.suppress(FileExistsError), _altering("mkdir", path):
        os.mkdir(path, 0o750)


def sync_directory(path: str) -> None:
    _refuse("sync_directory", path)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    _tell("sync_directory", path)


def sync_file_system(descriptor: int) -> None:
    """Syncs the whole file system of an open file or directory. Errors are reported if they
    happened after that was opened: so open it before the first write. Raises OSError."""
    cdef int fd = descriptor
    cdef int error
    with nogil:
        error = native_sync_file_system(fd)
    if error:
        raise OSError(error, os.strerror(error))


def write_atomic(path: str, data: bytes, mode: int = 0o640) -> None:
    """Replaces a file: temporary file, sync, rename, sync of the directory. Raises OSError; the old
    file stays then. On a full disk the reserve is used."""
    temporary = f"{path}.tmp"
    try:
        _write_synced(temporary, data, mode)
    except OSError as error:
        with contextlib.suppress(OSError):
            unlink(temporary)
        if not is_full(error.errno or 0) or not give_reserve():
            raise
        _write_synced(temporary, data, mode)
    rename(temporary, path)
    sync_directory(os.path.dirname(path) or ".")


def _write_synced(temporary: str, data: bytes, mode: int) -> None:
    fd = _open_empty(temporary, mode)
    try:
        with _altering("write", temporary, len(data), 0, data):
            with open(fd, "wb", closefd=False) as file:
                file.write(data)
        _sync(fd, temporary)
    finally:
        os.close(fd)


def _open_empty(path: str, mode: int) -> int:
    """The descriptor of a file without content, which is made if it is missing."""
    with _altering("truncate", path):
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)


def _sync(fd: int, path: str) -> None:
    _refuse("sync", path)
    os.fdatasync(fd)
    _tell("sync", path)


def write_new(path: str, pieces) -> int:
    """Writes a new file from an iterable of bytes and syncs it; returns its size. Raises
    OSError."""
    fd = _open_empty(path, 0o640)
    size = 0
    try:
        with open(fd, "wb", buffering=0, closefd=False) as file:
            for piece in pieces:
                view = memoryview(piece)
                with _altering("write", path, len(piece), size, piece):
                    while view:
                        view = view[file.write(view):]
                size += len(piece)
        _sync(fd, path)
    finally:
        os.close(fd)
    return size


def write_plain(path: str, data: bytes) -> None:
    """Replaces a file, without a sync: for what can be found out again. Raises OSError."""
    with _altering("write_file", path, len(data), 0, data), open(path, "wb") as file:
        file.write(data)


def append(path: str, data: bytes) -> None:
    """Appends bytes to a file, which is created if it is missing. Not synced. Raises OSError; then
    the file is cut to its former length, if it can be."""
    with _altering("open", path):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
    try:
        length = os.fstat(fd).st_size
        view = memoryview(data)
        try:
            with _altering("write", path, len(data), length, data):
                while view:
                    view = view[os.write(fd, view):]
        except OSError:
            # A part of it would make what is added later unreadable.
            with contextlib.suppress(OSError), _altering("truncate", path, length):
                os.ftruncate(fd, length)
            raise
    finally:
        os.close(fd)


def rename(old: str, new: str) -> None:
    with _altering("rename", new, 0, 0, os.fsencode(old)):
        os.replace(old, new)


def link(old: str, new: str) -> None:
    """Gives a file, which never changes any more, a second name. Raises OSError."""
    with _altering("link", new, 0, 0, os.fsencode(old)):
        os.link(old, new)


def truncate(path: str, length: int) -> None:
    with _altering("truncate", path, length):
        os.truncate(path, length)


def unlink(path: str) -> None:
    """Removes a file; one that is not there is fine."""
    with contextlib.suppress(FileNotFoundError), _altering("unlink", path):
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
    with _altering("rmdir", path):
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

# cython: language_level=3
"""Failpoints and the recorder: an observer of everything that the store does to a file.

A failpoint makes the n-th operation of a kind fail, or the next one take longer. The recorder
writes down what happened in which order, so that tests can check orders and enumerate crash states.
"""

import os

from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, strcmp, strdup
from posix.time cimport nanosleep, timespec

from broker.kernel.threads cimport (
    pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock,
)
from broker.store.files cimport observer
from broker.store.files.operation cimport (
    OP_CLOSE, OP_PUNCH, OP_READ, OP_RENAME, OP_RMDIR, OP_SYNC, OP_SYNC_DIRECTORY,
    OP_SYNC_FILE_SYSTEM, OP_TRUNCATE, OP_UNLINK, OP_WRITE_CONTENT, OP_WRITE_FILE,
)
from broker.store.files.observer cimport Observer
from broker.store.files.observer import KINDS


cdef extern from "<pthread.h>" nogil:
    ctypedef unsigned long pthread_t
    pthread_t pthread_self()
    int pthread_equal(pthread_t one, pthread_t other)


cdef enum:
    KIND_COUNT = 19              # of KINDS
    WITH_BYTES = 2
    LINK = 18
    THREADS_MAX = 64


cdef struct UnderWay:
    pthread_t thread
    char* path                   # NULL: nothing
    int kind


cdef struct Event:
    int kind                     # of KINDS, or -1: a mark
    char* mark
    char* path
    uint64_t offset
    uint64_t length
    int error
    uint8_t* data                # a copy of what was written, in a recording with bytes
    size_t data_length


cdef pthread_mutex_t guard
pthread_mutex_init(&guard, NULL)
cdef int recording = 0
cdef Event* events = NULL
cdef size_t event_count = 0
cdef size_t event_capacity = 0
cdef int failpoints = 0
cdef long fail_after[KIND_COUNT]
cdef int fail_errno[KIND_COUNT]
cdef double stall_seconds[KIND_COUNT]
cdef bint stalling = False
cdef Observer ours
cdef UnderWay under_way[THREADS_MAX]
cdef int under_way_count = 0
cdef int overlaps = 0


cdef void record_event(int kind, const char* name, const char* path, uint64_t offset,
                       uint64_t length, int error, const void* data,
                       size_t data_length) noexcept nogil:
    """Notes an operation, or the mark `name`."""
    global events, event_count, event_capacity
    cdef Event* grown
    if not recording:
        return
    pthread_mutex_lock(&guard)
    if event_count == event_capacity:
        event_capacity = event_capacity * 2 if event_capacity else 1024
        grown = <Event*> realloc(events, event_capacity * sizeof(Event))
        if grown == NULL:
            pthread_mutex_unlock(&guard)
            return
        events = grown
    events[event_count].kind = kind
    events[event_count].mark = strdup(name) if name != NULL else NULL
    events[event_count].path = strdup(path) if path != NULL else NULL
    events[event_count].offset = offset
    events[event_count].length = length
    events[event_count].error = error
    events[event_count].data = NULL
    events[event_count].data_length = 0
    if recording == WITH_BYTES and data != NULL:
        events[event_count].data = <uint8_t*> malloc(data_length + 1)
        if events[event_count].data != NULL:
            memcpy(events[event_count].data, data, data_length)
            events[event_count].data_length = data_length
    event_count += 1
    pthread_mutex_unlock(&guard)


cdef bint meets(int kind) noexcept nogil:
    """Whether an operation must not be under way beside another one on its path that alters it:
    whoever carries both out again would not know in which order. Files that are opened, read or
    synced and writes to different places do not meet; holes and contents without a name are not
    seen."""
    return (kind == OP_UNLINK or kind == OP_RMDIR or kind == OP_WRITE_FILE or kind == OP_RENAME
            or kind == OP_TRUNCATE or kind == LINK)


cdef void enter(int kind, const char* path) noexcept nogil:
    """Notes what this thread begins, and counts it if it meets what another one is at."""
    global under_way_count, overlaps
    cdef int i
    cdef UnderWay* own = NULL
    cdef pthread_t this_thread = pthread_self()
    pthread_mutex_lock(&guard)
    for i in range(under_way_count):
        if pthread_equal(under_way[i].thread, this_thread):
            own = &under_way[i]
        elif (alters(kind) and under_way[i].path != NULL
              and strcmp(under_way[i].path, path) == 0
              and (meets(kind) or meets(under_way[i].kind))):
            overlaps += 1
    if own == NULL and under_way_count < THREADS_MAX:
        own = &under_way[under_way_count]
        own.thread = this_thread
        own.path = NULL
        under_way_count += 1
    if own != NULL:
        free(own.path)
        own.path = strdup(path) if alters(kind) else NULL
        own.kind = kind
    pthread_mutex_unlock(&guard)


cdef bint alters(int kind) noexcept nogil:
    return not (kind == OP_READ or kind == OP_SYNC or kind == OP_SYNC_DIRECTORY
                or kind == OP_SYNC_FILE_SYSTEM or kind == OP_CLOSE or kind == OP_PUNCH
                or kind == OP_WRITE_CONTENT)


cdef void leave() noexcept nogil:
    """This thread's operation is over."""
    cdef int i
    cdef pthread_t this_thread = pthread_self()
    pthread_mutex_lock(&guard)
    for i in range(under_way_count):
        if pthread_equal(under_way[i].thread, this_thread):
            free(under_way[i].path)
            under_way[i].path = NULL
    pthread_mutex_unlock(&guard)


cdef void after(uint64_t number, int kind, const char* path, uint64_t offset, uint64_t length,
                int error, const void* data, size_t data_length) noexcept nogil:
    leave()
    record_event(kind, NULL, path, offset, length, error, data, data_length)


cdef void record_mark(const char* what, uint64_t number) noexcept nogil:
    record_event(-1, what, NULL, number, 0, 0, NULL, 0)


cdef int before(int kind, const char* path) noexcept nogil:
    """The errno that this operation has to fail with, or 0."""
    if recording and path != NULL:
        enter(kind, path)
    if not failpoints:
        return 0
    cdef int error = 0
    cdef double seconds
    cdef timespec duration
    pthread_mutex_lock(&guard)
    if fail_after[kind] > 0:
        fail_after[kind] -= 1
        if fail_after[kind] == 0:
            error = fail_errno[kind]
    elif fail_after[kind] < 0:
        error = fail_errno[kind]
    seconds = stall_seconds[kind]
    stall_seconds[kind] = 0
    pthread_mutex_unlock(&guard)
    duration.tv_sec = 0
    duration.tv_nsec = 10000000
    while seconds > 0 and stalling:
        nanosleep(&duration, NULL)
        seconds -= 0.01
    return error


ours.before = before
ours.after = after
ours.mark = record_mark
ours.every_read = False


cdef void observe() noexcept nogil:
    """Is the store's observer while there is something to do. Called with `guard` held."""
    ours.every_read = fail_after[OP_READ] < 0
    observer.observer = &ours if recording or failpoints else NULL


def record(bint on, bint with_bytes=False):
    """Starts an empty recording, or ends one. `with_bytes`: what is written is kept too."""
    global recording, event_count, overlaps
    cdef size_t i
    pthread_mutex_lock(&guard)
    overlaps = 0
    for i in range(event_count):
        free(events[i].mark)
        free(events[i].path)
        free(events[i].data)
    event_count = 0
    recording = WITH_BYTES if on and with_bytes else on
    observe()
    pthread_mutex_unlock(&guard)


def recorded() -> list:
    """The recording so far: tuples (kind, path or None, offset or number, length, errno), in the
    order of their completion."""
    cdef size_t i
    rows = []
    pthread_mutex_lock(&guard)
    for i in range(event_count):
        rows.append((
            events[i].mark.decode() if events[i].kind < 0 else KINDS[events[i].kind],
            None if events[i].path == NULL else os.fsdecode(<bytes> events[i].path),
            events[i].offset, events[i].length, events[i].error))
    pthread_mutex_unlock(&guard)
    return rows


def recorded_count() -> int:
    """How many events the recording has."""
    return event_count


def overlapping() -> int:
    """How many operations of the recording were under way beside another one on their path that
    they cannot be told in one order with."""
    return overlaps


def recorded_bytes() -> list:
    """The data that each event of the recording wrote; of a rename, the old name; else None."""
    cdef size_t i
    rows = []
    pthread_mutex_lock(&guard)
    for i in range(event_count):
        rows.append(
            None if events[i].data == NULL
            else <bytes> (<char*> events[i].data)[:events[i].data_length])
    pthread_mutex_unlock(&guard)
    return rows


def fail(str kind, long nth, int error):
    """Lets the n-th call of `kind` from now (1 = the next) fail with `error`; -1 every one; 0 takes
    the failpoint away."""
    global failpoints
    pthread_mutex_lock(&guard)
    for index, name in enumerate(KINDS):
        if name == kind:
            fail_after[index] = nth
            fail_errno[index] = error
    failpoints = any(fail_after[i] or stall_seconds[i] for i in range(KIND_COUNT))
    observe()
    pthread_mutex_unlock(&guard)


def stall(str kind, double seconds):
    """Lets the next call of `kind` take `seconds` longer, as a disk does that does not answer; 0
    ends all that wait so."""
    global failpoints, stalling
    pthread_mutex_lock(&guard)
    for index, name in enumerate(KINDS):
        if name == kind:
            stall_seconds[index] = seconds
    failpoints = any(fail_after[i] or stall_seconds[i] for i in range(KIND_COUNT))
    stalling = seconds > 0
    observe()
    pthread_mutex_unlock(&guard)

# cython: language_level=3
"""Failpoints and the recorder, which everything that the store does to a file passes.

A failpoint makes the n-th call of a kind fail, or the next one take longer. The recorder writes
down what happened in which order, so that tests can check orders and enumerate crash states.
"""

import os

from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, strdup


cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int nanosleep(const timespec* duration, timespec* left)


cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    int pthread_mutex_init(pthread_mutex_t* mutex, void* attributes)
    int pthread_mutex_lock(pthread_mutex_t* mutex)
    int pthread_mutex_unlock(pthread_mutex_t* mutex)


KINDS = (
    "mkdir", "open", "write", "write", "write", "sync", "sync_directory", "sync_file_system",
    "close", "unlink", "read", "rmdir", "punch", "write_file", "write", "rename", "truncate",
    "write_content",
)

PLANTS = (
    "none", "no sync", "no directory sync", "confirm before the write", "confirm before the sync",
    "no check", "confirm one more", "skip the last record", "keep acks", "reuse numbers",
    "ignore a full disk", "requeue at the end", "hand over unsynced",
)
"""Faults that a test can plant, so that what looks for faults can be seen to find them."""

cdef enum:
    KIND_COUNT = 18              # of KINDS
    WITH_BYTES = 2


cdef struct Event:
    char* kind
    char* path
    uint64_t offset
    uint64_t length
    int error
    uint8_t* data                # a copy of what was written, in a recording with bytes
    size_t data_length


cdef pthread_mutex_t guard
pthread_mutex_init(&guard, NULL)
recording = 0
planted = 0
cdef Event* events = NULL
cdef size_t event_count = 0
cdef size_t event_capacity = 0
cdef int failpoints = 0
cdef long fail_after[KIND_COUNT]
cdef int fail_errno[KIND_COUNT]
cdef double stall_seconds[KIND_COUNT]
cdef bint stalling = False


cdef void record_event(const char* kind, const char* path, uint64_t offset, uint64_t length,
                       int error, const void* data, size_t data_length) noexcept nogil:
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
    events[event_count].data = NULL
    events[event_count].data_length = 0
    if recording == WITH_BYTES and data != NULL:
        events[event_count].data = <uint8_t*> malloc(data_length + 1)
        if events[event_count].data != NULL:
            memcpy(events[event_count].data, data, data_length)
            events[event_count].data_length = data_length
    event_count += 1
    pthread_mutex_unlock(&guard)


cdef void record_mark(const char* kind, uint64_t number) noexcept nogil:
    """Notes something that is not a file operation, such as a confirm's bytes leaving the
    channel."""
    record_event(kind, NULL, number, 0, 0, NULL, 0)


cdef int failing(int kind) noexcept nogil:
    """The errno that this call of `kind` has to fail with, or 0."""
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


cdef bint fails_always(int kind) noexcept nogil:
    """Whether every call of `kind` has to fail."""
    return failpoints and fail_after[kind] < 0


def record(bint on, bint with_bytes=False):
    """Starts an empty recording, or ends one. `with_bytes`: what is written is kept too."""
    global recording, event_count
    cdef size_t i
    pthread_mutex_lock(&guard)
    for i in range(event_count):
        free(events[i].kind)
        free(events[i].path)
        free(events[i].data)
    event_count = 0
    recording = WITH_BYTES if on and with_bytes else on
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


def mark(str kind):
    """Notes, in a recording, a change of the file system that no other function reports."""
    if recording:
        encoded = kind.encode()
        record_mark(encoded, 0)


def recorded_count() -> int:
    """How many events the recording has."""
    return event_count


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
    pthread_mutex_unlock(&guard)


def stall(str kind, double seconds):
    """Lets the next call of `kind` take `seconds` longer, as a disk does that does not answer; 0
    ends all that wait so."""
    global failpoints, stalling
    pthread_mutex_lock(&guard)
    for index, name in enumerate(KINDS):
        if name == kind:
            stall_seconds[index] = seconds
    failpoints = 1
    stalling = seconds > 0
    pthread_mutex_unlock(&guard)


def plant(str fault):
    """Plants one of PLANTS; "none" takes it away."""
    global planted
    planted = PLANTS.index(fault)

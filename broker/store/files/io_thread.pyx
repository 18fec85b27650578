# cython: language_level=3
"""A thread that carries out rounds of file operations without Python's lock and reports through an
eventfd.

The broker has four of them: the persister's, one that reads what is not in memory, one that removes
files, and one that writes large bodies as they are received.
"""

import os
import threading

from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset
from posix.time cimport nanosleep, timespec

from broker.kernel.clock cimport monotonic_ns
from broker.kernel.threads cimport (
    pthread_cond_broadcast, pthread_cond_init, pthread_cond_signal, pthread_cond_wait,
    pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock, sem_init, sem_post, sem_wait,
)
from broker.store.files.disk cimport run_op
from broker.store.files.operation cimport File, OP_SYNC, OP_SYNC_DIRECTORY, OP_SYNC_FILE_SYSTEM, Op
from broker.store.files.space cimport cut_back, give_reserve, has_space, is_full, is_short


cdef extern from "<errno.h>" nogil:
    int ENOSPC


cdef extern from "<unistd.h>" nogil:
    ssize_t c_read "read"(int fd, void* data, size_t length)
    ssize_t c_write "write"(int fd, const void* data, size_t length)
    int c_close "close"(int fd)


cdef enum:
    SPACE_PAUSE_NS = 50000000    # between tries to write to a full disk


cdef Round* round_new() except NULL:
    cdef Round* round = <Round*> calloc(1, sizeof(Round))
    if round == NULL:
        raise MemoryError("no memory for a round of file operations")
    return round


cdef void round_free(Round* round) noexcept:
    cdef int stage, i
    cdef OpList* stage_ops
    for stage in range(STAGES):
        stage_ops = &round.stages[stage]
        for i in range(stage_ops.count):
            free(stage_ops.ops[i].path)
            if stage_ops.ops[i].owns_data:
                free(stage_ops.ops[i].data)
        free(stage_ops.ops)
    free(round)


cdef Op* round_add(Round* round, int stage, int kind, File* file) except NULL:
    """A new operation at the end of a stage; the caller fills in the rest before adding another
    one."""
    cdef OpList* stage_ops = &round.stages[stage]
    cdef Op* grown
    cdef Op* op
    cdef int capacity
    if stage_ops.count == stage_ops.capacity:
        capacity = stage_ops.capacity * 2 if stage_ops.capacity else 4
        grown = <Op*> realloc(stage_ops.ops, capacity * sizeof(Op))
        if grown == NULL:
            raise MemoryError("no memory for a round of file operations")
        stage_ops.ops = grown
        stage_ops.capacity = capacity
    op = &stage_ops.ops[stage_ops.count]
    memset(op, 0, sizeof(Op))
    op.kind = kind
    op.file = file
    stage_ops.count += 1
    if file != NULL:
        file.busy += 1
    return op


cdef bint passes(int kind, int error) noexcept nogil:
    """Whether the operation found no space and may be repeated: any operation except a sync. After
    a failed sync the state of the disk is unknown."""
    return is_full(error) and kind != OP_SYNC and kind != OP_SYNC_DIRECTORY and (
        kind != OP_SYNC_FILE_SYSTEM)


cdef class IoThread:
    """Rounds go in by `submit`, come out by `finished`, in the same order. `event_fd` becomes
    readable when one is done. `helpers` more threads take part in its syncs."""

    def __cinit__(self, str name, int helpers=0):
        pthread_mutex_init(&self.mutex, NULL)
        sem_init(&self.given, 0, 0)
        self.waiting_first = self.waiting_last = NULL
        self.done_first = self.done_last = NULL
        self.helped_enough = False
        self.helper_count = helpers
        self.event_fd = -1
        self.event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.thread = threading.Thread(target=self.run, name=name, daemon=True)
        pthread_mutex_init(&self.sharing, NULL)
        pthread_cond_init(&self.shared, NULL)
        pthread_cond_init(&self.shared_done, NULL)
        self.syncs = NULL
        self.helpers = [
            threading.Thread(target=self.help, name=f"{name} {index + 1}", daemon=True)
            for index in range(helpers)
        ]

    def start(self):
        self.thread.start()
        for helper in self.helpers:
            helper.start()

    def stop(self):
        """Ends the thread after what it was given; the caller takes the finished rounds
        afterwards."""
        sem_post(&self.given)
        self.thread.join()
        pthread_mutex_lock(&self.sharing)
        self.helped_enough = True
        pthread_cond_broadcast(&self.shared)
        pthread_mutex_unlock(&self.sharing)
        for helper in self.helpers:
            helper.join()

    def close(self):
        if self.event_fd >= 0:
            os.close(self.event_fd)
            self.event_fd = -1

    def __dealloc__(self):
        if self.event_fd >= 0:
            c_close(self.event_fd)

    def run(self):
        with nogil:
            self.loop()

    def help(self):
        with nogil:
            self.take_part(True)

    cdef void run_round(self, Round* round) noexcept nogil:
        cdef uint64_t began = monotonic_ns()
        cdef uint64_t stage_began
        cdef int stage, i
        cdef OpList* ops
        cdef Op* failed = NULL
        for stage in range(STAGES):
            ops = &round.stages[stage]
            stage_began = monotonic_ns()
            if stage == STAGE_REMOVE:
                for i in range(ops.count):
                    run_op(&ops.ops[i])
                continue
            if stage == STAGE_BEHIND:
                failed = self.run_behind(ops)
            elif stage == STAGE_SYNC and self.helper_count and ops.count > 1:
                failed = self.share(ops)
            else:
                failed = self.run_stage(ops, stage != STAGE_WRITE)
            if failed == NULL and stage == STAGE_WRITE:
                failed = self.run_postponable(ops)
            if stage == STAGE_DIRECTORIES or stage == STAGE_SYNC:
                round.sync_nanoseconds += monotonic_ns() - stage_began
            if failed != NULL:
                round.error = failed.error
                round.failed_kind = failed.kind
                round.failed_path = failed.file.path if failed.file != NULL else failed.path
                break
        round.nanoseconds = monotonic_ns() - began

    cdef Op* run_stage(self, OpList* ops, bint in_order) noexcept nogil:
        """Carries out the operations of a stage, except those that can wait. One that finds the
        disk full is repeated until there is space: it has synced nothing, so it loses nothing.
        Where the order does not matter, the other operations continue meanwhile.

        Returns the operation that failed for good; those behind it were not tried.
        """
        cdef int i
        cdef int first = 0
        cdef bint again = False
        cdef Op* op
        cdef Op* waiting
        while True:
            waiting = NULL
            for i in range(first, ops.count):
                op = &ops.ops[i]
                if op.can_wait or (again and not in_order and op.error == 0):
                    continue
                if op.file != NULL and op.file.gone and (again or op.file.fd < 0):
                    op.error = 0
                    continue
                run_op(op)
                if op.error == 0:
                    continue
                if not passes(op.kind, op.error):
                    return op
                waiting = op
                if in_order:
                    first = i
                    break
            if waiting == NULL:
                return NULL
            again = True
            if not self.wait_for_space():
                return waiting

    cdef Op* run_postponable(self, OpList* ops) noexcept nogil:
        """Writes the records of a round, after everything else: messages that a crash leaves must
        be known as delivered. Without space they are postponed to the next round, so that acks,
        watermarks and definitions are still written: consumers need those, and free the disk.

        Returns the operation that failed for good.
        """
        cdef int i
        cdef bint postponed = False
        cdef Op* op
        for i in range(ops.count):
            if ops.ops[i].can_wait:
                ops.ops[i].file.short_of_space = False
        for i in range(ops.count):
            op = &ops.ops[i]
            if not op.can_wait or op.file.gone:
                op.error = 0
                continue
            # Acks or definitions may have taken the reserve while no record waited: records leave
            # it to them all the same.
            if op.file.short_of_space or (
                    (self.full or is_short())
                    and not has_space(op.file.fd, op.length + op.body_length)):
                op.error = ENOSPC
            else:
                run_op(op)
                if op.error != 0:
                    if not is_full(op.error):
                        return op
                    cut_back(op.file, op.offset)
            if op.error != 0:
                op.file.short_of_space = True
                self.full = postponed = True
        self.full = postponed
        return NULL

    cdef Op* run_behind(self, OpList* ops) noexcept nogil:
        """What is written only when all records of the round are on disk: postponed with them.

        Returns the operation that failed for good.
        """
        cdef int i
        for i in range(ops.count):
            ops.ops[i].can_wait = self.full
            if self.full:
                ops.ops[i].error = ENOSPC
        return NULL if self.full else self.run_stage(ops, True)

    cdef bint wait_for_space(self) noexcept nogil:
        """The disk is full: uses the reserve, or waits a moment. False: the broker stops and cannot
        wait."""
        cdef timespec pause
        self.full = True
        if give_reserve():
            return True
        if self.impatient:
            return False
        pause.tv_sec = 0
        pause.tv_nsec = SPACE_PAUSE_NS
        nanosleep(&pause, NULL)
        return True

    cdef Op* share(self, OpList* syncs) noexcept nogil:
        """Syncs of several files at a time: the disk's queue and the file system's journal take
        them together. Returns one that failed."""
        cdef int i
        pthread_mutex_lock(&self.sharing)
        self.syncs = syncs
        self.sync_next = 0
        self.syncs_left = syncs.count
        # One thread fewer than parts, since this thread takes one: more wake-ups bring no gain.
        for _ in range(syncs.count - 1 if syncs.count <= self.helper_count else self.helper_count):
            pthread_cond_signal(&self.shared)
        pthread_mutex_unlock(&self.sharing)
        self.take_part(False)
        pthread_mutex_lock(&self.sharing)
        while self.syncs_left:
            pthread_cond_wait(&self.shared_done, &self.sharing)
        self.syncs = NULL
        pthread_mutex_unlock(&self.sharing)
        for i in range(syncs.count):
            if syncs.ops[i].error != 0:
                return &syncs.ops[i]
        return NULL

    cdef void take_part(self, bint stay) noexcept nogil:
        """Takes one sync after the other; a helper stays for the next round's."""
        cdef Op* op
        pthread_mutex_lock(&self.sharing)
        while True:
            if self.syncs == NULL or self.sync_next >= self.syncs.count:
                if not stay or self.helped_enough:
                    break
                pthread_cond_wait(&self.shared, &self.sharing)
                continue
            op = &self.syncs.ops[self.sync_next]
            self.sync_next += 1
            pthread_mutex_unlock(&self.sharing)
            if op.file == NULL or op.file.fd >= 0 or not op.file.gone:
                # Else it was removed before it was opened: there is nothing to sync.
                run_op(op)
            pthread_mutex_lock(&self.sharing)
            self.syncs_left -= 1
            if self.syncs_left == 0:
                pthread_cond_signal(&self.shared_done)
        pthread_mutex_unlock(&self.sharing)

    cdef void loop(self) noexcept nogil:
        cdef Round* round
        cdef uint64_t one = 1
        while True:
            # Not a condition variable: its mutex counts as contended after each wait, so that to
            # unlock it would be a system call.
            while sem_wait(&self.given) != 0:
                pass                     # a signal came
            pthread_mutex_lock(&self.mutex)
            round = self.waiting_first
            if round == NULL:            # `stop`
                pthread_mutex_unlock(&self.mutex)
                return
            self.waiting_first = round.next
            if self.waiting_first == NULL:
                self.waiting_last = NULL
            pthread_mutex_unlock(&self.mutex)
            self.run_round(round)
            pthread_mutex_lock(&self.mutex)
            round.next = NULL
            if self.done_last == NULL:
                self.done_first = round
            else:
                self.done_last.next = round
            self.done_last = round
            pthread_mutex_unlock(&self.mutex)
            c_write(self.event_fd, &one, 8)

    cdef void submit(self, Round* round) noexcept:
        round.next = NULL
        pthread_mutex_lock(&self.mutex)
        if self.waiting_last == NULL:
            self.waiting_first = round
        else:
            self.waiting_last.next = round
        self.waiting_last = round
        self.open += 1
        pthread_mutex_unlock(&self.mutex)
        # Not before: the thread would wake up and wait for the mutex.
        sem_post(&self.given)

    cdef void drain(self) noexcept:
        """Takes the count from the eventfd; there may be none."""
        cdef uint64_t count
        c_read(self.event_fd, &count, sizeof(count))

    cdef Round* finished(self) noexcept:
        """The next finished round, which the caller frees, or NULL."""
        pthread_mutex_lock(&self.mutex)
        cdef Round* round = self.done_first
        if round != NULL:
            self.done_first = round.next
            if self.done_first == NULL:
                self.done_last = NULL
            self.open -= 1
        pthread_mutex_unlock(&self.mutex)
        return round

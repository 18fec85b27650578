# cython: language_level=3
"""The gate of the file system: every change of a file or a directory passes it.

While it is shut, no thread changes a file, and no change is under way: the files are then what a
process that is killed at that moment leaves behind. Reads and syncs continue. It is shut for
moments only: confirms wait meanwhile. A write that the kernel carries out beside us
(`broker.store.files.async_io`) has left the gate when it has begun: who shuts it waits for that.
"""

import contextlib

from broker.store.files.async_io cimport wait_for_all
from broker.store.files.operation cimport (
    OP_CLOSE, OP_READ, OP_SYNC, OP_SYNC_DIRECTORY, OP_SYNC_FILE_SYSTEM, Op,
)


cdef extern from *:
    """
    #include <pthread.h>
    static pthread_rwlock_t leveret_gate = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
    static inline void gate_enter(void) { pthread_rwlock_rdlock(&leveret_gate); }
    static inline int gate_try(void) { return pthread_rwlock_tryrdlock(&leveret_gate) == 0; }
    static inline void gate_shut(void) { pthread_rwlock_wrlock(&leveret_gate); }
    static inline void gate_leave(void) { pthread_rwlock_unlock(&leveret_gate); }
    """
    void gate_enter() nogil
    bint gate_try() nogil
    void gate_shut() nogil
    void gate_leave() nogil


cdef bint holes_are_held = False


cdef void enter() noexcept nogil:
    """Before something is altered; waits while the gate is shut. Not to be nested."""
    gate_enter()


cdef bint enter_if_open() noexcept nogil:
    """The same for one who cannot wait. Returns whether the gate was entered."""
    return gate_try()


cdef void leave() noexcept nogil:
    gate_leave()


cdef bint alters(Op* op) noexcept nogil:
    return not (op.kind == OP_READ or op.kind == OP_SYNC or op.kind == OP_SYNC_DIRECTORY
                or op.kind == OP_SYNC_FILE_SYSTEM or op.kind == OP_CLOSE)


cdef bint holes_held() noexcept nogil:
    return holes_are_held


def hold_holes(bint held):
    """Holes are not punched in segments while they are held: their files are being copied."""
    global holes_are_held
    holes_are_held = held


@contextlib.contextmanager
def shut():
    """No file is changed inside. What began before and is still under way ends first."""
    with nogil:
        gate_shut()
        wait_for_all()
    try:
        yield
    finally:
        gate_leave()


@contextlib.contextmanager
def altering():
    """Around an alteration that is no `Op`."""
    with nogil:
        gate_enter()
    try:
        yield
    finally:
        gate_leave()

# cython: language_level=3
"""Writes that the kernel carries out beside us, with direct I/O: no thread waits for them.

A `Flight` is a write that is on the disk when it is over, or a few writes and then one sync for
all, which has the disk write what its cache has (`native_sync_is_for_all` says where). The kernel's
list belongs to the process: the one who looks takes back what is over, of all flights, one at a
time. What a file has then is noted here (`File.written`, `File.block`), since the gate may be shut
before the loop comes to it.
"""

from libc.stdint cimport uint64_t
from posix.time cimport nanosleep, timespec

from broker.kernel.threads cimport (
    pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock,
)
from broker.store.files.direct_blocks cimport note_blocks
from broker.store.files.operation cimport BLOCK_BYTES


cdef extern from "broker/store/files/native_aio.h" nogil:
    int native_aio_setup(unsigned int most, unsigned long* context)
    void native_aio_write(iocb* control, int fd, int done, const void* data, size_t length,
                          uint64_t offset, bint synced, void* mark)
    void native_aio_sync(iocb* control, int fd, int done, void* mark)
    int native_aio_submit(unsigned long context, int count, iocb** controls, int* error)
    int native_aio_over(unsigned long context, int most, io_event* events)


cdef extern from "<errno.h>" nogil:
    int EAGAIN


cdef enum:
    MOST_WRITES = 256            # of all flights of the process
    TAKEN_AT_ONCE = 32
    PAUSE_NS = 50000             # between two looks of one who waits for all

cdef pthread_mutex_t taking
pthread_mutex_init(&taking, NULL)
cdef unsigned long context = 0
cdef bint is_asked = False       # whether the kernel was asked for the context
cdef int flying = 0


cdef bint is_available() noexcept nogil:
    """Whether the kernel lets this process write so."""
    global is_asked, context
    cdef bint there
    pthread_mutex_lock(&taking)
    if not is_asked:
        is_asked = True
        if native_aio_setup(MOST_WRITES, &context):
            context = 0
    there = context != 0
    pthread_mutex_unlock(&taking)
    return there


cdef bint begin_flight(Flight* flight) noexcept nogil:
    """Begins a flight. Returns whether any of its writes has begun; those that have not are over,
    with the errno of that."""
    cdef iocb* controls[FLIGHT_FILES]
    cdef Write* write
    cdef int index, begun
    cdef int error = 0
    flight.error = 0
    flight.failed = NULL
    flight.is_syncing = False
    flight.left = flight.count
    for index in range(flight.count):
        write = &flight.writes[index]
        write.flight = flight
        native_aio_write(
            &write.control, write.ops.file.direct_fd, flight.event_fd, write.blocks, write.length,
            write.ops.offset - write.ops.offset % BLOCK_BYTES, flight.count == 1, write)
        controls[index] = &write.control
    pthread_mutex_lock(&taking)
    begun = submit(flight.count, controls, &error)
    for index in range(begun, flight.count):
        end(&flight.writes[index], -error)
    pthread_mutex_unlock(&taking)
    return begun > 0


cdef int submit(int count, iocb** controls, int* error) noexcept nogil:
    """Begins operations; returns how many have begun."""
    global flying
    cdef int begun = 0
    error[0] = EAGAIN
    if flying + count <= MOST_WRITES:
        begun = native_aio_submit(context, count, controls, error)
    flying += begun
    return begun


cdef bint is_over(Flight* flight) noexcept nogil:
    """Takes back what is over; whether all of this flight is."""
    cdef bint over
    pthread_mutex_lock(&taking)
    take_back()
    over = flight.left == 0
    pthread_mutex_unlock(&taking)
    return over


cdef void wait_for_all() noexcept nogil:
    """Waits until no write is under way. In between the loop may ask whether one is over."""
    cdef timespec pause
    cdef bint over
    pause.tv_sec = 0
    pause.tv_nsec = PAUSE_NS
    while True:
        pthread_mutex_lock(&taking)
        take_back()
        over = not flying
        pthread_mutex_unlock(&taking)
        if over:
            return
        nanosleep(&pause, NULL)


cdef void take_back() noexcept nogil:
    """Takes back what is over, of all flights."""
    global flying
    cdef io_event events[TAKEN_AT_ONCE]
    cdef int index, count
    if not flying:
        return
    count = native_aio_over(context, TAKEN_AT_ONCE, events)
    flying -= count
    for index in range(count):
        end(<Write*> <size_t> events[index].data, events[index].res)


cdef void end(Write* write, long result) noexcept nogil:
    """A write is over, or the sync behind all, which is marked with the first: `result` is the
    write's length and the sync's 0, or less than 0 the errno."""
    cdef Flight* flight = write.flight
    cdef iocb* sync = &flight.sync
    cdef int error = 0
    cdef int index
    flight.left -= 1
    if flight.is_syncing:
        if result != 0:
            fail(write, result)
        return
    if result == <long> write.length:
        note_blocks(write.ops, write.count, write.blocks)
        for index in range(write.count):
            write.ops[index].is_written = True
    else:
        # A part is written once more, with the rest.
        fail(write, result if result < 0 else -EAGAIN)
    if flight.left or flight.count == 1 or flight.error:
        return
    flight.is_syncing = True
    flight.left = 1
    native_aio_sync(sync, write.ops.file.direct_fd, flight.event_fd, &flight.writes[0])
    if not submit(1, &sync, &error):
        flight.left = 0
        fail(write, -error)


cdef void fail(Write* write, long result) noexcept nogil:
    """Another failure must not hide an error of the disk behind one that the thread may repeat."""
    if write.flight.error == 0 or write.flight.error == EAGAIN:
        write.flight.error = <int> -result
        write.flight.failed = write.ops

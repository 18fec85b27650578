from libc.stdint cimport int64_t, uint8_t, uint64_t

from broker.store.files.operation cimport Op


cdef extern from "broker/store/files/native_aio.h" nogil:
    struct iocb:
        pass
    struct io_event:
        uint64_t data
        int64_t res


cdef enum:
    FLIGHT_FILES = 16            # files that one flight writes at most


cdef struct Write:
    iocb control
    Flight* flight
    Op* ops                      # that follow each other in one file
    int count
    uint8_t* blocks              # whole blocks: what is in the first one already, records, zeros
    size_t length


cdef struct Flight:
    Write writes[16]
    int count
    int left                     # that are not over; the sync behind them is one, too
    bint is_syncing
    iocb sync
    int event_fd                 # becomes readable when there is something to take back
    int error                    # errno of one that failed
    Op* failed


cdef bint is_available() noexcept nogil
cdef bint begin_flight(Flight* flight) noexcept nogil
cdef bint is_over(Flight* flight) noexcept nogil
cdef void wait_for_all() noexcept nogil

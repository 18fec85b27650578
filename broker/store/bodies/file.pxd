from libc.stdint cimport uint32_t, uint64_t

from broker.kernel.buffer cimport Buffer
from broker.store.files.operation cimport File


cdef class BodyFile:
    cdef readonly uint32_t first         # numbers of the files that it stands for
    cdef readonly uint32_t last
    cdef readonly uint32_t generation
    cdef public uint64_t size            # bytes, as handed to the writer
    cdef public uint64_t valid           # bytes of records with references
    cdef public uint32_t flying          # records in the round in flight
    cdef public bint sealed
    cdef public bint collecting
    cdef bint half_dead                  # it is among those that may be worth collecting
    cdef public double dropped_at        # when a record lost its last reference, monotonic seconds
    cdef public double spared_until      # it could not be collected: not before this time again
    cdef readonly str path
    cdef Buffer toc                      # entries, while the file is written
    cdef void* before                    # neighbours among the store's files, which keeps them
    cdef void* after
    cdef File* file

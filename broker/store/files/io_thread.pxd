from libc.stdint cimport uint32_t, uint64_t

from broker.kernel.threads cimport pthread_cond_t, pthread_mutex_t, sem_t
from broker.store.files.operation cimport File, Op


# The stages of a round, in the order in which they are carried out.
cdef enum:
    STAGE_JOURNAL = 0
    STAGE_MAKE = 1
    STAGE_DIRECTORIES = 2
    STAGE_WRITE = 3
    STAGE_SYNC = 4
    STAGE_BEHIND = 5         # written and synced only when all before is on disk
    STAGE_REMOVE = 6
    STAGES = 7


# Ended rounds are taken back for this long before the loop gets its turn back: the thread may end
# more meanwhile, as fast as they are taken.
cdef enum:
    SLICE_NS = 500000


cdef struct OpList:
    Op* ops
    int count
    int capacity


cdef struct Round:
    uint64_t number
    OpList stages[7]
    int error                # errno of the first operation that failed; later ones were not tried
    int failed_kind
    char* failed_path        # borrowed from the operation
    bint sync
    bint whole               # by one syncfs
    bint thorough            # syncs all data
    bint acks                # has all acks; otherwise only those that must not come later
    uint64_t nanoseconds     # from taking it up to its end
    uint64_t sync_nanoseconds  # of its syncs, directories included
    int sync_files           # files and directories that they covered
    void* owner              # borrowed: the ContentFile that it is for
    Round* next


cdef Round* round_new() except NULL
cdef void round_free(Round* round) noexcept
cdef Op* round_add(Round* round, int stage, int kind, File* file) except NULL
cdef bint passes(int kind, int error) noexcept nogil


cdef class IoThread:
    cdef pthread_mutex_t mutex
    cdef sem_t given             # one for each round that waits, and one for the end
    cdef Round* waiting_first
    cdef Round* waiting_last
    cdef Round* done_first
    cdef Round* done_last
    cdef readonly uint32_t open          # rounds that are not taken back yet
    cdef readonly bint full              # writes wait for space on the disk
    cdef public bint impatient           # a write that finds none fails its round
    cdef readonly int event_fd
    cdef object thread
    cdef pthread_mutex_t sharing
    cdef pthread_cond_t shared
    cdef pthread_cond_t shared_done
    cdef OpList* syncs           # shared with the helpers, or NULL
    cdef int sync_next
    cdef int syncs_left
    cdef bint helped_enough
    cdef int helper_count
    cdef list helpers

    cdef void run_round(self, Round* round) noexcept nogil
    cdef Op* share(self, OpList* syncs) noexcept nogil
    cdef void take_part(self, bint stay) noexcept nogil
    cdef void loop(self) noexcept nogil
    cdef Op* run_stage(self, OpList* ops, bint in_order) noexcept nogil
    cdef Op* run_postponable(self, OpList* ops) noexcept nogil
    cdef Op* run_behind(self, OpList* ops) noexcept nogil
    cdef bint wait_for_space(self) noexcept nogil
    cdef void submit(self, Round* round) noexcept
    cdef void drain(self) noexcept
    cdef Round* finished(self) noexcept

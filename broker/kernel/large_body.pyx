# cython: language_level=3
"""Bodies in memory of their own, which is handed on instead of copied.

Fresh memory costs half a microsecond a KiB at its first touch and a tenth of that when it is given
back: for 128 MiB 60 and 10 ms of a turn of the loop. So the memory of a large body is filled by a
thread, goes from the channel to the body store and to the connections of consumers, and a thread
gives it back.
"""

import threading

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from broker.kernel.message cimport Message
from broker.kernel.threads cimport (
    pthread_cond_init, pthread_cond_signal, pthread_cond_t, pthread_cond_wait, pthread_mutex_init,
    pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock,
)


cdef extern from "<sys/mman.h>" nogil:
    void* c_mmap "mmap"(void*, size_t, int, int, int, long)
    int c_munmap "munmap"(void*, size_t)
    int PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS
    void* MAP_FAILED


# Memory that waits to be given back; its first bytes link it to the next.
cdef struct Unused:
    Unused* next
    size_t size

cdef pthread_mutex_t mutex
cdef pthread_cond_t condition
cdef Unused* unused = NULL
cdef bint is_running = False
pthread_mutex_init(&mutex, NULL)
pthread_cond_init(&condition, NULL)


cdef class LargeBody:
    """`length` bytes of a body behind `head` bytes. Raises MemoryError."""

    def __cinit__(self, size_t head, uint64_t length):
        self.head = head
        self.length = length
        if length < LARGE_BODY:
            self.memory = <uint8_t*> malloc(self.size())
        else:
            self.memory = <uint8_t*> c_mmap(
                NULL, self.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
            if <void*> self.memory == MAP_FAILED:
                self.memory = NULL
        if self.memory == NULL:
            raise MemoryError(f"no memory for a body of {length} bytes")

    def __dealloc__(self):
        if self.length < LARGE_BODY:
            free(self.memory)
        elif self.memory != NULL:
            give_back(<Unused*> self.memory, self.size())

    def __len__(self):
        return self.length

    def __getitem__(self, slice part) -> bytes:
        """Bytes of the body, as of `bytes` with a step of 1."""
        first, end, _ = part.indices(self.length)
        return PyBytes_FromStringAndSize(
            <char*> self.body() + <size_t> first, max(end - first, 0))

    cdef uint8_t* body(self) noexcept:
        return self.memory + self.head

    cdef size_t size(self) noexcept:
        """Of the memory: there is room for a link in the smallest."""
        return self.head + self.length + sizeof(Unused)


cdef LargeBody copy_of(const uint8_t* body, uint64_t length):
    """Of a body that lies where it cannot stay."""
    cdef LargeBody copy = LargeBody(0, length)
    memcpy(copy.memory, body, length)
    return copy


cdef body_of(const Message* message):
    """What keeps the body of a message: its bytes, or the LargeBody."""
    if message.large != NULL:
        return <object> message.large
    return message.body[:message.body_length]


cdef void set_body(Message* message, body):
    """Points a message to what `body_of` returned, which has to outlive it."""
    cdef LargeBody large
    if isinstance(body, LargeBody):
        large = body
        message.large = <void*> large
        message.body = large.body()
    else:
        message.large = NULL
        message.body = <const uint8_t*> <char*> <bytes> body
    message.body_length = <uint32_t> len(body)


cdef void give_back(Unused* memory, size_t size) noexcept:
    """Lets the thread do it."""
    global is_running, unused
    if not is_running:
        try:
            threading.Thread(target=run, name="memory", daemon=True).start()
            is_running = True
        except RuntimeError:  # the process ends, or may have no more threads
            c_munmap(memory, size)
            return
    memory.size = size
    pthread_mutex_lock(&mutex)
    memory.next = unused
    unused = memory
    pthread_cond_signal(&condition)
    pthread_mutex_unlock(&mutex)


cdef void returning() noexcept nogil:
    global unused
    cdef Unused* memory
    while True:
        pthread_mutex_lock(&mutex)
        while unused == NULL:
            pthread_cond_wait(&condition, &mutex)
        memory = unused
        unused = memory.next
        pthread_mutex_unlock(&mutex)
        c_munmap(memory, memory.size)


def run():
    """What the thread does, as long as the process lives."""
    with nogil:
        returning()

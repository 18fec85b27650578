cdef class Task:
    cdef bint pending

    cdef int work(self) except -1


cdef class Turn:
    cdef list queues
    cdef list connections
    cdef public object schedule
    cdef public object after
    cdef bint scheduled

    cdef int touch_queue(self, Task queue) except -1
    cdef int touch_connection(self, Task connection) except -1

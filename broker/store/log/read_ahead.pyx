# cython: language_level=3
"""Reads small files ahead of recovery.

After a power cut the page cache is empty, and recovery would wait for each file of many thousand
queues. Some threads read ahead of it, directory by directory, only to fill the cache: recovery
reports what cannot be opened.
"""

import os
import threading

from libc.stdlib cimport free, malloc

from broker.kernel.threads cimport (
    pthread_cond_broadcast, pthread_cond_init, pthread_cond_wait, pthread_mutex_init,
    pthread_mutex_lock, pthread_mutex_unlock,
)


cdef extern from "broker/store/files/native.h" nogil:
    void native_read_ahead(const char* directory, size_t length)


cdef enum:
    THREADS = 4
    FEW = 64                     # up to this number, directories are read as quickly without
    AHEAD = 1024                 # directories that the threads may be before the reader
    FIRST_BYTES = 128 << 10      # of each file; behind that the system reads ahead by itself


cdef class ReadAhead:
    """For directories in the order in which they will be read."""

    def __cinit__(self, directories):
        cdef size_t index
        pthread_mutex_init(&self.mutex, NULL)
        pthread_cond_init(&self.going_on, NULL)
        self.directories = [os.fsencode(directory) for directory in directories]
        self.threads = []
        if len(self.directories) < FEW:
            return
        self.paths = <const char**> malloc(len(self.directories) * sizeof(char*))
        if self.paths == NULL:
            return
        self.count = len(self.directories)
        for index in range(self.count):
            self.paths[index] = <const char*> <char*> <bytes> self.directories[index]
        for number in range(THREADS):
            thread = threading.Thread(target=self.run, name=f"read ahead {number + 1}", daemon=True)
            self.threads.append(thread)
            thread.start()

    def __dealloc__(self):
        free(<void*> self.paths)

    def passed(self) -> None:
        """The reader is done with one more directory."""
        if self.count == 0:
            return
        pthread_mutex_lock(&self.mutex)
        self.reached += 1
        if self.reached % (AHEAD // 4) == 0:
            pthread_cond_broadcast(&self.going_on)
        pthread_mutex_unlock(&self.mutex)

    def stop(self) -> None:
        """The reader is done."""
        pthread_mutex_lock(&self.mutex)
        self.stopping = True
        pthread_cond_broadcast(&self.going_on)
        pthread_mutex_unlock(&self.mutex)
        for thread in self.threads:
            thread.join()
        self.threads = []

    def run(self):
        with nogil:
            self.loop()

    cdef void loop(self) noexcept nogil:
        cdef size_t index
        pthread_mutex_lock(&self.mutex)
        while self.next < self.count and not self.stopping:
            if self.next < self.reached:
                # The reader has overtaken the threads.
                self.next = self.reached
                continue
            if self.next >= self.reached + AHEAD:
                pthread_cond_wait(&self.going_on, &self.mutex)
                continue
            index = self.next
            self.next += 1
            pthread_mutex_unlock(&self.mutex)
            native_read_ahead(self.paths[index], FIRST_BYTES)
            pthread_mutex_lock(&self.mutex)
        pthread_mutex_unlock(&self.mutex)

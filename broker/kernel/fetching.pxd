"""What is read soon is fetched into the processor's cache."""

cdef extern from *:
    """
    #define fetch_line(address) __builtin_prefetch(address)
    """
    void fetch_line(const void *address) noexcept nogil

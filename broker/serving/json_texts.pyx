# cython: language_level=3
"""Where the long texts of a JSON document are, so that who decodes it can do that in steps."""

from libc.stdint cimport uint8_t
from libc.string cimport memchr


cdef struct Found:
    Py_ssize_t first
    Py_ssize_t end


cdef const uint8_t* closing_quote(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """The quote that ends a text which begins at `p`; NULL if none does."""
    cdef const uint8_t* begin = p
    cdef const uint8_t* before
    while True:
        p = <const uint8_t*> memchr(p, b'"', end - p)
        if p == NULL:
            return NULL
        before = p
        while before > begin and (before - 1)[0] == b'\\':
            before -= 1
        if (p - before) % 2 == 0:
            return p
        p += 1
        begin = p


cdef Found next_long(const uint8_t* data, Py_ssize_t at, Py_ssize_t length,
                     Py_ssize_t least) noexcept nogil:
    """The first text of `least` octets or more from `at` on, which is outside of texts; `first` is
    -1 if there is none."""
    cdef Found found
    cdef const uint8_t* quote
    cdef const uint8_t* p = data + at
    cdef const uint8_t* end = data + length
    found.first = found.end = -1
    while True:
        p = <const uint8_t*> memchr(p, b'"', end - p)
        if p == NULL:
            return found
        p += 1
        quote = closing_quote(p, end)
        if quote == NULL:
            return found
        if quote - p >= least:
            found.first = p - data
            found.end = quote - data
            return found
        p = quote + 1


def long_texts(bytes document, Py_ssize_t least) -> list:
    """(first, end) of the texts of `least` octets or more, without their quotes, in order. Other
    threads run meanwhile. A text that does not end is none; what is no JSON has what its quotes
    say."""
    cdef const uint8_t* data = document
    cdef Py_ssize_t length = len(document)
    cdef Py_ssize_t at = 0
    cdef Found found
    places = []
    while True:
        with nogil:
            found = next_long(data, at, length, least)
        if found.first < 0:
            return places
        places.append((found.first, found.end))
        at = found.end + 1

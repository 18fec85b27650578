# cython: language_level=3
"""How deep JSON is nested, before anything decodes it: decoders recurse, up to the limit of the
interpreter, and whatever Python calls meanwhile (a function of the garbage collector) fails there.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.unicode cimport PyUnicode_DATA, PyUnicode_GET_LENGTH, PyUnicode_KIND
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.string cimport memchr


cdef extern from "Python.h":
    int PyUnicode_1BYTE_KIND, PyUnicode_2BYTE_KIND
    Py_ssize_t PY_SSIZE_T_MAX


ctypedef fused Letter:
    uint8_t
    uint16_t
    uint32_t


def is_nested_over(text, Py_ssize_t most) -> bool:
    """Whether the value of a JSON text (str, or bytes in UTF-8) has lists and objects in more than
    `most` levels. It is read until it is too deep or ends; text that is no JSON is nested as far as
    its brackets say."""
    cdef bytes octets
    cdef const void* data
    cdef Py_ssize_t length
    if not isinstance(text, str):
        octets = text
        if octets.count(b"[") + octets.count(b"{") <= most:
            return False
        return too_deep(<const uint8_t*> octets, len(octets), most)
    if text.count("[") + text.count("{") <= most:
        return False
    data = PyUnicode_DATA(text)
    length = PyUnicode_GET_LENGTH(text)
    if PyUnicode_KIND(text) == PyUnicode_1BYTE_KIND:
        return too_deep(<const uint8_t*> data, length, most)
    if PyUnicode_KIND(text) == PyUnicode_2BYTE_KIND:
        return too_deep(<const uint16_t*> data, length, most)
    return too_deep(<const uint32_t*> data, length, most)


class TooWide(ValueError):
    """A value holds more values than it may."""


class TooDeep(ValueError):
    """A value is nested over more levels than it may be."""


def end_of_value(text, Py_ssize_t begin, Py_ssize_t levels, Py_ssize_t values) -> int:
    """The place behind the value that begins at `begin`, in a JSON text in UTF-8 (any buffer).
    Of a value that is cut off it is the end of the text; what is no JSON ends somewhere. Raises
    TooDeep for lists and objects in more than `levels` levels, TooWide for more than `values`
    commas between what they hold."""
    cdef Py_buffer view
    cdef Py_ssize_t end
    PyObject_GetBuffer(text, &view, PyBUF_SIMPLE)
    try:
        end = value_end(<const uint8_t*> view.buf, begin, view.len, levels, values)
    finally:
        PyBuffer_Release(&view)
    if end == DEEP:
        raise TooDeep(f"it is nested over {levels} levels")
    if end == WIDE:
        raise TooWide(f"it holds over {values} values")
    return end


cdef enum:
    DEEP = -1
    WIDE = -2


cdef bint is_space(Letter letter) noexcept:
    return letter == c' ' or letter == c'\n' or letter == c'\r' or letter == c'\t'


cdef Py_ssize_t value_end(const Letter* text, Py_ssize_t at, Py_ssize_t end, Py_ssize_t levels,
                          Py_ssize_t values) noexcept:
    """The place behind a value, white space before it passed over; or DEEP, or WIDE."""
    cdef Py_ssize_t depth = 0
    cdef Letter letter
    while at < end and is_space(text[at]):
        at += 1
    while at < end:
        letter = text[at]
        if letter == c'"':
            at = behind_text(text, at + 1, end)
            if depth == 0:
                return at
            continue
        if letter == c'[' or letter == c'{':
            depth += 1
            if depth > levels:
                return DEEP
        elif letter == c']' or letter == c'}':
            if depth <= 1:
                return at + depth     # one that closes nothing is behind the value
            depth -= 1
        elif letter == c',':
            if depth == 0:
                return at
            values -= 1
            if values < 0:
                return WIDE
        elif depth == 0 and is_space(letter):
            return at
        at += 1
    return end


cdef bint too_deep(const Letter* text, Py_ssize_t end, Py_ssize_t most) noexcept:
    return value_end(text, 0, end, most, PY_SSIZE_T_MAX) == DEEP


cdef Py_ssize_t behind_text(const Letter* text, Py_ssize_t at, Py_ssize_t end) noexcept:
    """The place behind the closing quote of what begins at `at`."""
    cdef const Letter* quote
    cdef const Letter* before
    while at < end:
        if Letter is uint8_t:
            quote = <const uint8_t*> memchr(text + at, c'"', end - at)
            if quote == NULL:
                break
            before = quote
            while before > text + at and (before - 1)[0] == c'\\':
                before -= 1
            at = quote - text + 1
            if (quote - before) % 2 == 0:
                return at
        elif text[at] == c'"':
            return at + 1
        else:
            at += 2 if text[at] == c'\\' else 1
    return end

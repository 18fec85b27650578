# cython: language_level=3
"""The hook for exceptions that Python can raise nowhere: of a finalizer, or of a function that its
garbage collector calls.

They come wherever code allocates or frees, at the limit of recursion too. A Python function has no
room for a call there, and its line would be lost. This one is called without a frame, and
takes the room before it calls anything.
"""

import sys

cdef extern from "Python.h":
    int Py_GetRecursionLimit()
    void Py_SetRecursionLimit(int limit)

cdef enum:
    ROOM = 300                   # calls that a line of the log may be deep

cdef object log_it = None
cdef int inside = 0              # hooks that run, of all threads: the interpreter has one limit
cdef int usual = 0


def tell_by(told):
    """From now on `hook` calls `told` with its argument."""
    global log_it
    log_it = told


def hook(error, /):
    """For `sys.unraisablehook`. Raises nothing: what the log does not take, Python writes."""
    global inside, usual
    if inside == 0:
        usual = Py_GetRecursionLimit()
        Py_SetRecursionLimit(usual + ROOM)
    inside += 1
    try:
        log_it(error)
    except BaseException:
        try:
            sys.__unraisablehook__(error)
        except BaseException:
            pass
    finally:
        inside -= 1
        if inside == 0:
            Py_SetRecursionLimit(usual)

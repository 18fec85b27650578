# cython: language_level=3
"""Delayed messages that are due and have not left yet."""


cdef class Refused:
    """A message that was due and could not leave: a queue that has to take it is full, or an error
    came between."""


cdef class Leaving:
    """The one that is on its way to very many queues, which get it in several turns."""

    def __init__(self, WideLetter letter):
        self.letter = letter

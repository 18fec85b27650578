# cython: language_level=3
"""Which rounds wait for a second turn, so that they write what comes with it, too.

Where turns follow at once and each brings little, half as many rounds are enough. Publishers that
wait for their confirms publish nothing meanwhile: behind a round that waited in vain, the next ones
begin at once.
"""

cimport cython
from libc.stdint cimport uint64_t


cdef enum:
    AT_ONCE = 32                 # rounds that wait for no turn behind one that did so in vain


@cython.final
cdef class SecondTurn:
    """Asked when a round can begin. Sizes are bytes that no round has written."""

    cdef bint has_come(self, uint64_t unwritten) noexcept:
        """Whether the round has waited for a turn. It begins now."""
        if not self.is_awaited:
            return False
        self.is_awaited = False
        if unwritten <= self.unwritten:
            self.at_once = AT_ONCE
        return True

    cdef bint is_worth_while(self, uint64_t unwritten) noexcept:
        """Whether a round that may wait does so."""
        if self.at_once:
            self.at_once -= 1
            return False
        self.is_awaited = True
        self.unwritten = unwritten
        return True

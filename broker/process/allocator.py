"""The C library's allocator: what a process that lives long must set and ask, lest it keeps what
was freed. Does nothing where the library has no such calls.

Left alone, memory once taken stays with the process in two places that `malloc_trim` does not look
at: at the top of the heap of each thread, of which there may be eight for each processor; and in
blocks below a bound that grows to the largest freed one, up to 32 MiB. The 19 MiB that the hash of
a password takes lie in both.
"""

from __future__ import annotations

import ctypes

MAPPED_BYTES = 8 << 20
"""A block of memory from this size on has a mapping of its own, which goes when it is freed."""
TRIMMED_BYTES = 16 << 20
"""Free memory at the top of the first heap that is kept: the library's own bound when the one above
is 8 MiB. Once that is set, it would be 128 KiB, and each burst would take its pages anew."""

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # of <malloc.h>


def map_large_blocks() -> None:
    """Maps blocks from `MAPPED_BYTES` on, whatever was freed before."""
    _set(M_MMAP_THRESHOLD, MAPPED_BYTES)
    _set(M_TRIM_THRESHOLD, TRIMMED_BYTES)


def share_one_heap() -> None:
    """Gives the threads that are started from now on no heaps of their own: for a process whose
    threads take memory with Python's lock, that is one at a time."""
    _set(M_ARENA_MAX, 1)


def give_memory_back() -> None:
    """Asks the C library for what it keeps of freed memory; without that a memory alarm may never
    clear. Not for the loop's thread: pages are given back one by one."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _set(parameter: int, value: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(parameter, value)

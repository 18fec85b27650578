"""Keys that a client would choose if a table used `mixed` of wide_dict.pxd without a secret."""

from __future__ import annotations

_LAST = 2**64 - 1
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def mixed(key: int) -> int:
    key = (key ^ key >> 30) * _FIRST & _LAST
    key = (key ^ key >> 27) * _SECOND & _LAST
    return key ^ key >> 31


def mixed_to(value: int) -> int:
    """The key that `mixed` makes this of."""
    value = _unshifted(value, 31) * pow(_SECOND, -1, 2**64) & _LAST
    value = _unshifted(value, 27) * pow(_FIRST, -1, 2**64) & _LAST
    return _unshifted(value, 30)


def _unshifted(value: int, by: int) -> int:
    found = value
    for _ in range(64 // by + 1):
        found = value ^ found >> by
    return found

"""What the files of an index tell about themselves and about messages."""

from __future__ import annotations

from typing import NamedTuple


class Damaged(Exception):
    """A file of an index, or a part of one, that fails its checksum; the text names it."""


class Hit(NamedTuple):
    """A message that may have a key. `time` in ms since 1970, at the edge of what its file can tell
    if the message is older or younger; `is_bound`: it is not younger. `size` of its record."""

    time: int
    is_bound: bool
    incarnation: int
    segment: int
    position: int
    size: int


class Row(NamedTuple):
    """A stream in a file. `begin` and `next` are (segment, position): what lies between is indexed
    there. The segments are those that items name, 0 without items."""

    incarnation: int
    items: int
    first_segment: int
    last_segment: int
    begin: tuple[int, int]
    next: tuple[int, int]

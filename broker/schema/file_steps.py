"""What another process asks the broker to do to files of the data directory, step by step.

Imports nothing but msgspec: both sides of the process border read this file.
"""

from __future__ import annotations

import msgspec


class Bring(msgspec.Struct, frozen=True, tag="bring"):
    """Copies the finished file `source` to `target`, whole or not at all."""

    source: str
    target: str


class Link(msgspec.Struct, frozen=True, tag="link"):
    """Gives the file `source`, which no longer changes, a second name."""

    source: str
    target: str


class Write(msgspec.Struct, frozen=True, tag="write"):
    """Makes `data` the content of a small file. All that came before is on disk by then."""

    target: str
    data: bytes


class Remove(msgspec.Struct, frozen=True, tag="remove"):
    """Removes a file, or a directory with all in it. All that came before is on disk by then."""

    target: str


Step = Bring | Link | Write | Remove

"""Which worker of a parallel run takes which files, and when.

A file stays on one worker, so that what its module starts is started once. The files of a room in
`TOGETHER` stay on one worker too: they share a Java machine, a browser or a RabbitMQ. What takes
long begins first, since at the end the other workers would wait for it.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from xdist.scheduler import LoadScopeScheduling

TOGETHER = ("tests/reports", "tests/web", "tests/client")
FIRST = (*TOGETHER, "tests/soak", "tests/crash", "tests/addons", "tests/fuzz", "tests/usage",
         "tests/hostile", "tests/bench", "tests/store", "tests/api")  # fmt: skip
"""Rooms in the order of their longest test; the others follow."""


def room_of(nodeid: str) -> str:
    """The directory of a test's file: `tests/web`."""
    return str(PurePosixPath(nodeid.partition("::")[0]).parent)


def turn_of(nodeid: str) -> int:
    """When the room of the test has its turn; the less the earlier."""
    room = room_of(nodeid)
    return FIRST.index(room) if room in FIRST else len(FIRST)


class Scheduling(LoadScopeScheduling):
    """Gives out files, and some rooms as a whole, in the order in which they were collected."""

    def __init__(self, config: Any, log: Any = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        room = room_of(nodeid)
        return room if room in TOGETHER else nodeid.partition("::")[0]

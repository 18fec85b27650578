"""Carrying out the journal of a vhost at start, and setting aside what cannot be carried out: an
entry, or the messages of a queue."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker.store.directory.journal import Journal
from broker.store.files import disk
from broker.vhosts.bindings import Bindings
from broker.vhosts.changes import read_entry, told

log = logging.getLogger("leveret.vhost")

# Errors that say nothing about the file or directory they came from: the next one may be sound and
# fail just so.
OF_EVERY_FILE = frozenset(
    {
        errno.EDQUOT,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ENOSPC,
        errno.EROFS,
    }
)


class Replay:
    """One journal of the vhost `name`. `apply(method, change, incarnation)` carries a change
    out in the vhost.

    `problems` are sentences about what was wrong. With `lacks_definitions` there may be more on
    disk than the definitions speak of, and nothing may be removed for that.
    """

    def __init__(
        self, name: str, journal: Journal, apply: Callable[[str, dict[str, Any], int], None]
    ) -> None:
        self.problems: list[str] = list(journal.problems)
        self.lacks_definitions = journal.incomplete
        self.entries = 0
        self._name = name
        self._journal = journal
        self._apply = apply

    def run(self) -> None:
        """Carries out every entry. Raises OSError and MemoryError, which say nothing about an
        entry."""
        for data in self._journal.recovered:
            self._carry_out(data)
            self.entries += 1
        self._journal.recovered.clear()

    def _carry_out(self, data: bytes) -> None:
        """One entry. Where others are lost, it may speak of what is not there.

        One that cannot be carried out, whatever the reason, is set aside: a copy of the journal
        stays in quarantine, where the directory of its queue or exchange goes too, and everything
        else is served."""
        try:
            self._apply(*read_entry(data))
        except (OSError, MemoryError):
            raise
        except Exception as error:
            is_first = not self._journal.kept
            kept = self._journal.keep_copy()
            if isinstance(error, LookupError) and self.lacks_definitions:
                self.problems.append(f"vhost '{self._name}': a definition refers to {error}, lost")
                return
            if is_first:
                log.exception("vhost '%s': a definition cannot be carried out", self._name)
            self.lacks_definitions = True
            self.problems.append(
                f"vhost '{self._name}': {told(data)} cannot be carried out and was set aside "
                f"({type(error).__name__}: {error}); all definitions as they were are in {kept}"
            )

    def drop_loose(self, bindings: Bindings) -> None:
        """Removes bindings to queues and exchanges whose definitions are lost."""
        for binding in bindings.drop_loose():
            self.problems.append(
                f"vhost '{self._name}': a binding of exchange '{binding.source}' to "
                f"{binding.destination_type} '{binding.destination}', lost, was removed"
            )


def is_of_one_queue(error: Exception) -> bool:
    """Whether the messages of other queues may well be found where those of one were not."""
    if isinstance(error, OSError):
        return error.errno not in OF_EVERY_FILE
    return not isinstance(error, MemoryError)


def set_aside(directory: str, quarantine: str) -> str:
    """Moves the directory of a queue whose messages cannot be found again to quarantine, whole;
    where it is now. Raises OSError.

    An empty one takes its place until the next start: what was begun in it has to go somewhere.
    """
    disk.makedirs(quarantine)
    kept = stem = f"{quarantine}/queues-{Path(directory).name}"
    number = 1
    while disk.exists(kept):
        number += 1
        kept = f"{stem}.{number}"
    disk.rename(directory, kept)
    disk.sync_directory(quarantine)
    disk.makedirs(directory)
    return kept

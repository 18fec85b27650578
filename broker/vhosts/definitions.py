"""The vhosts: which there are, where they lie, and how they come and go.

`vhosts.json` names them with their incarnation ids; each has a directory of that id with its
journal and queues. An id is never used twice: it is the number of this start of the broker, which
is counted on disk, and a sequence number.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from broker.queues import types as queue_types
from broker.settings.files import SettingsError, SettingsFiles
from broker.store.directory import one_file_system
from broker.store.files import disk
from broker.store.log.recovery import keep_bodies_of
from broker.vhosts.defining import DIRECTORIES
from broker.vhosts.vhost import VHost

log = logging.getLogger("leveret.definitions")

VHOSTS_FILE = "vhosts.json"
KEPT_QUEUE = re.compile(r"queues-[0-9a-f]{16}")


class VHostRecord(msgspec.Struct, omit_defaults=True):
    """A vhost as `vhosts.json` holds it. `incarnation` is hexadecimal, as in the directory's
    name."""

    name: str
    incarnation: str = ""
    description: str = ""
    tags: list[str] = []
    default_queue_type: str = "classic"
    protected_from_deletion: bool = False


class Definitions:
    """All vhosts of a data directory. `make(name, incarnation, directory, **properties)` builds a
    `VHost`."""

    def __init__(self, directory: str, files: SettingsFiles, make: Callable[..., VHost]) -> None:
        self.vhosts: dict[str, VHost] = {}
        self.problems: list[str] = []
        self.boot = 0
        self._directory = directory
        self._files = files
        self._make = make
        self._sequence = itertools.count(1)
        self._records: dict[str, VHostRecord] = {}

    def next_incarnation(self) -> int:
        """A u64 that no other vhost or queue of this data directory ever had or will have."""
        return self.boot << 32 | next(self._sequence)

    def queue_name(self, incarnation: int) -> tuple[str, str]:
        """(vhost, queue) of an incarnation id, empty if unknown; looks through all queues."""
        for vhost in self.vhosts.values():
            if vhost.incarnation == incarnation:
                return vhost.name, "(shared bodies)"
        for vhost in self.vhosts.values():
            for queue in vhost.queues.values():
                if queue.incarnation == incarnation:
                    return vhost.name, queue.name
        return "", ""

    def recover(self, first_vhost: str | None = None) -> None:
        """Reads what there is, removes what was deleted, and finds the messages. `first_vhost` is
        made where there is no vhost; without it, `/` where no list says that there is none. Raises
        SettingsError, TwoFileSystems or OSError."""
        one_file_system.check(self._directory)
        self._count_boot()
        self._records.clear()
        rows = self._files.load(VHOSTS_FILE, list[VHostRecord])
        if not rows and (rows is None or first_vhost is not None):
            first = VHostRecord(first_vhost or "/", description="Default virtual host")
            rows = [] if first_vhost == "" else [first]
        for row in rows:
            if row.name in self.vhosts:
                raise SettingsError(f"{VHOSTS_FILE}: vhost '{row.name}' is there twice")
            if row.default_queue_type not in queue_types.TYPES:
                raise SettingsError(
                    f"{VHOSTS_FILE}: vhost '{row.name}' has the default_queue_type "
                    f"'{row.default_queue_type}'; expected {queue_types.NAMES}"
                )
            # A person may add a vhost by its name alone.
            incarnation = int(row.incarnation, 16) if row.incarnation else self.next_incarnation()
            self._add(row, incarnation)
        for vhost in self.vhosts.values():
            disk.makedirs(vhost.queues_directory)
            disk.remove_tree(vhost.transient_directory)
            disk.makedirs(vhost.transient_directory)
            living = vhost.recover()
            if self._remove_unknown(
                vhost.queues_directory, living, self.problems, keep=vhost.lacks_definitions
            ):
                # Where a clean stop saved who refers to what, these queues are in it still.
                vhost.bodies.doubt()
            for directory, owners in vhost.owned:
                self._remove_unknown(directory, owners, self.problems, keep=vhost.lacks_definitions)
            for name in disk.listdir(f"{self._directory}/quarantine"):
                if KEPT_QUEUE.fullmatch(name):
                    keep_bodies_of(
                        vhost.bodies, f"{self._directory}/quarantine/{name}", int(name[-16:], 16)
                    )
            vhost.keep_definitions()
            for _ in vhost.recover_messages():
                pass
            for problem in vhost.problems:
                log.error("%s", problem)
            self.problems += vhost.problems
        self._remove_unknown(
            f"{self._directory}/vhosts",
            {vhost.incarnation for vhost in self.vhosts.values()},
            self.problems,
        )
        self._save()

    def _count_boot(self) -> None:
        path = f"{self._directory}/boots"
        text = disk.read(path).decode("ascii", "replace").strip() if disk.exists(path) else "0"
        if not text.isdigit():
            raise SettingsError(f"{path}: '{text[:40]}' is not the number of starts")
        self.boot = int(text) + 1
        disk.write_atomic(path, f"{self.boot}\n".encode())

    def _remove_unknown(
        self, directory: str, living: set[int], problems: list[str], *, keep: bool = False
    ) -> bool:
        """Directories of ids that were given and are no more go, or with `keep` to the quarantine,
        where definitions are lost; anything else is reported and left alone. Returns whether
        anything went to quarantine."""
        any_kept = False
        for name in disk.listdir(directory):
            try:
                incarnation = int(name, 16) if len(name) == 16 else -1
            except ValueError:
                incarnation = -1
            if incarnation in living:
                continue
            if 0 < incarnation >> 32 <= self.boot and keep and disk.listdir(f"{directory}/{name}"):
                place = f"{self._directory}/quarantine"
                disk.makedirs(place)
                kept = f"{place}/{Path(directory).name}-{name}"
                disk.rename(f"{directory}/{name}", kept)
                disk.sync_directory(place)
                any_kept = True
                problems.append(
                    f"{directory}/{name} may be of a queue or an exchange whose definition is "
                    f"lost; it was moved to {kept}"
                )
            elif 0 < incarnation >> 32 <= self.boot:
                disk.remove_tree(f"{directory}/{name}")
            else:
                problems.append(f"{directory}/{name} is not known here; it was left alone")
        return any_kept

    def _add(self, row: VHostRecord, incarnation: int) -> VHost:
        vhost = self._make(
            row.name,
            incarnation,
            f"{self._directory}/vhosts/{incarnation:016x}",
            description=row.description,
            tags=row.tags,
            default_queue_type=row.default_queue_type,
            protected_from_deletion=row.protected_from_deletion,
        )
        self.vhosts[row.name] = vhost
        self._note(vhost)
        return vhost

    def prepare(self, count: int, owned: Iterable[str]) -> list[int]:
        """Incarnation ids of `count` new vhosts, whose directories are there when it returns;
        `owned` are those of features. For a thread: each is some syncs. The next start removes
        those that were not used. Raises OSError: TwoFileSystems where one was mounted since the
        start."""
        found = [self.next_incarnation() for _ in range(count)]
        tops = [f"{self._directory}/vhosts/{incarnation:016x}" for incarnation in found]
        inner = (*DIRECTORIES, *owned)
        disk.makedirs(f"{self._directory}/vhosts")
        disk.make_all([path for top in tops for path in (top, *(f"{top}/{one}" for one in inner))])
        one_file_system.check_these(self._directory, tops)
        return found

    def create_vhost(
        self,
        name: str,
        *,
        description: str = "",
        tags: list[str] | None = None,
        default_queue_type: str = "classic",
        protected_from_deletion: bool = False,
        incarnation: int | None = None,
    ) -> VHost:
        """A new vhost with its predeclared exchanges. On disk when the settings files and the
        persister have had their turn. `incarnation` is one of `prepare`; without it, the disk is
        waited for."""
        vhost = self._add(
            VHostRecord(
                name,
                description=description,
                tags=tags or [],
                default_queue_type=default_queue_type,
                protected_from_deletion=protected_from_deletion,
            ),
            self.next_incarnation() if incarnation is None else incarnation,
        )
        disk.makedirs(vhost.queues_directory)
        disk.makedirs(vhost.transient_directory)
        vhost.recover()
        vhost.start()
        self._save()
        return vhost

    def change_vhost(
        self,
        name: str,
        *,
        description: str | None = None,
        tags: list[str] | None = None,
        default_queue_type: str | None = None,
        protected_from_deletion: bool | None = None,
    ) -> None:
        """Changes what is given. Raises KeyError."""
        vhost = self.vhosts[name]
        if description is not None:
            vhost.description = description
        if tags is not None:
            vhost.tags = tags
        if default_queue_type is not None:
            vhost.default_queue_type = default_queue_type
        if protected_from_deletion is not None:
            vhost.protected_from_deletion = protected_from_deletion
        self._note(vhost)
        self._save()

    def remove_vhost(self, name: str) -> VHost:
        """Takes a vhost out, so that it cannot be opened any more; the caller deletes what is in
        it. The next start removes its directory. Raises KeyError."""
        vhost = self.vhosts.pop(name)
        del self._records[name]
        self._save()
        return vhost

    def _save(self) -> None:
        self._files.put(VHOSTS_FILE, list(self._records.values()))

    def _note(self, vhost: VHost) -> None:
        """What `vhosts.json` says of the vhost. All of them anew with each one of an import of
        thousands would take seconds."""
        self._records[vhost.name] = VHostRecord(
            vhost.name,
            f"{vhost.incarnation:016x}",
            vhost.description,
            vhost.tags,
            vhost.default_queue_type,
            vhost.protected_from_deletion,
        )

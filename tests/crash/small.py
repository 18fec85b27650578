"""A broker with one or two messages in every kind of file, so small that each file can be cut at
every byte."""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

from broker.fields import properties
from tests.crash.explore import look
from tests.crash.inside import Inside, publish
from tests.crash.profiles import EMBED_BELOW, Profile, small_bodies
from tests.crash.stream_script import ARGUMENTS, NAME, PERSISTENT
from tests.crash.workload import LATE
from tests.inner import keep_place

WHOLLY = ("offsets.", "due.")
KEPT = {"definitions.journal", "LOCK", "LOG"}
SHARED = b"s" * EMBED_BELOW
QUEUES = ("q", "r", "late")
BODIES = {b"one", b"two", SHARED, b"later 1", b"later 2"}
STREAM = {(0, b"first"), (1, b"second")}


class Small:
    """Such a broker in `directory`; `end` stops it."""

    def __init__(self, directory: Path, backend: str) -> None:
        self.directory = directory
        self.profile = Profile("small", bodies=small_bodies(backend), run_of=2)
        self.inside = Inside(directory, profile=self.profile).start()
        vhost = self.inside.vhost
        for name in QUEUES:
            vhost.declare_queue(name, durable=True)
        vhost.declare_queue(NAME, durable=True, arguments=ARGUMENTS)
        vhost.declare_exchange("fan", "fanout", durable=True)
        delayed = {"x-delayed-type": "fanout"}
        vhost.declare_exchange("later", "x-delayed-message", durable=True, arguments=delayed)
        for source, name in (("fan", "q"), ("fan", "r"), ("later", "late")):
            vhost.bind(source, name, "queue", "")
        self.inside.make_runs_short()
        for body in (b"one", b"two"):
            publish(vhost, "", "q", PERSISTENT, body)
        publish(vhost, "fan", "", PERSISTENT, SHARED)
        for body in (b"later 1", b"later 2"):
            publish(vhost, "later", "", LATE, body)
        for _, body in sorted(STREAM):
            publish(vhost, "", NAME, properties.encode({}), body)
        self.inside.sync()
        taken = self.inside.take(vhost.queues["q"])
        vhost.queues["q"].settle_place(taken.place)
        keep_place(vhost.queues[NAME].store, "tag", 1)
        self.inside.tick()

    def end(self, clean: bool) -> None:
        """A clean stop or a kill."""
        self.inside.stop() if clean else self.inside.kill()

    def files(self) -> list[Path]:
        """The store's files, but for what has tests of its own."""
        found = sorted((self.directory / "vhosts").rglob("*"))
        return [path for path in found if path.is_file() and path.name not in KEPT]

    @contextlib.contextmanager
    def damaged(self, target: Path, path: Path) -> Iterator[Path]:
        """A copy of the directory, and where the file is in it."""
        shutil.copytree(self.directory, target)
        self.copy = target
        yield target / path.relative_to(self.directory)
        shutil.rmtree(target)

    def wrong_after_start(self) -> str:
        """What a start on the copy gives that was never there, or that it did not start."""
        try:
            found = look(self.copy, self.profile)
        except Exception as error:
            return f"no start: {type(error).__name__}: {error}"
        bodies = {body for rows in found.queues.values() for body, _ in rows}
        if strange := bodies - BODIES:
            return f"altered: {strange}"
        if strange := set(found.stream) - STREAM:
            return f"altered in the stream: {strange}"
        if found.places.get("tag", 1) not in (0, 1):  # 0 where the message at 1 is gone
            return f"altered place: {found.places}"
        return ""


def cut_everywhere(base: Path, backend: str, clean: bool, others: int = 1) -> tuple[int, list[str]]:
    """Starts on each file of a small broker, cut at each byte, below `base`; at every `others`-th
    byte where the file is none of WHOLLY. Returns the number of starts, and what was wrong."""
    small = Small(base / "data", backend)
    small.end(clean)
    starts = 0
    wrong = []
    log = logging.getLogger("leveret")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        for path in small.files():
            wholly = path.suffix == ".bdy" or path.name.startswith(WHOLLY)
            content = path.read_bytes()
            for at in range(0, len(content), 1 if wholly else others):
                starts += 1
                with small.damaged(base / "damaged", path) as damaged:
                    damaged.write_bytes(content[:at])
                    if seen := small.wrong_after_start():
                        wrong.append(f"{path.relative_to(base)} cut at {at}: {seen}")
    finally:
        log.setLevel(level)
    return starts, wrong

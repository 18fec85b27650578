"""A cycle that ends with a backup instead of a kill: what the copy holds is what a kill would have
left at an instant after the command began.

Publishers go on all the time. The consumers end just before the command begins, so that their
journals say what they had; others, whose journals nobody reads, take their place while files are
copied, so that messages are settled, segments go and holes are wanted meanwhile.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field

from tests.bench.leveret import REPOSITORY, Leveret
from tests.crash.journal import RECORD, Kind, Record, read
from tests.crash.loop import CONSUMED, Crash, Spawned

HELD = "is held"


@dataclass
class BackedUp(Crash):
    """A run in which the broker goes on with its own backup. `rate` of the copying."""

    rate: str = "0"
    still: list[str] = field(default_factory=list)
    """What the commands said of the moment they hold."""

    def _load_and_kill(self, after: float) -> None:
        assert isinstance(self.victim, Leveret)
        publishers, consumers = self.load()
        time.sleep(0.3 + after)
        for process, _ in consumers:
            process.send_signal(signal.SIGTERM)
        for process, _ in consumers:
            process.wait()
        before = [journal.stat().st_size // RECORD.size for _, journal in publishers]
        data = self.victim.directory / "data"
        copy = self.directory / "copy"
        command = [sys.executable, "manage.py", "backup", str(copy), "--data-dir", str(data)]
        command += ["--rate", self.rate]
        with subprocess.Popen(
            command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as copying:
            assert copying.stdout is not None
            held = copying.stdout.readline()
            assert HELD in held
            self.still.append(held.strip())
            others = [self._spawn("consumer", 2, queue) for queue in CONSUMED]
            told = copying.stdout.read()
        assert self.victim.server is not None
        ended = self.victim.server.poll()
        assert copying.returncode == 0, (
            f"{told}\nthe broker's exit status: {ended}\n" + self._end_of_log()
        )
        assert "is whole" in told
        self.victim.kill()
        for process, journal in others:
            process.communicate()
            journal.unlink()
        self._collect_until(publishers, before)
        self.collect([], consumers)
        shutil.rmtree(data)
        copy.rename(data)

    def _end_of_log(self) -> str:
        return self.log.read_text(errors="replace")[-3000:] if self.log is not None else ""

    def _collect_until(self, publishers: list[Spawned], before: list[int]) -> None:
        """Feeds the publishers' journals: all that was attempted, but only those confirms that had
        been given before the command began."""
        for number, (process, journal) in enumerate(publishers):
            process.communicate()
            assert process.returncode == 0
            records: list[Record] = []
            for place, record in enumerate(read(journal)):
                if place < before[number] or record.kind is Kind.ATTEMPTED:
                    records.append(record)
                if record.sequence >= self.next_sequence[number]:
                    self.next_sequence[number] = record.sequence + 1
            self.checker.publisher_journal(records)
            journal.unlink()

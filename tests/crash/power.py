"""Power cuts: `python -m tests.crash.power --cuts 200`. As root, where loop devices exist.

The data directory lies on ext4 on a loop device. Under load the file system is shut down without
writing its log, as if the power had gone; then it is mounted again, every other time with
`noauto_da_alloc`, and the broker starts on what is there.

The broker is stopped an instant before, as nobody says anything behind a power cut. It has to be:
an fdatasync that the shutdown meets in the middle may return 0, though the log with its changes is
thrown away (seen with Linux 6.18 and without any broker: six times in 400).

`--history`: what is published has a history, indexed and in an object store, which lies on the same
file system (`history_power.py`).
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.appliance import Appliance
from tests.bench.leveret import Leveret
from tests.crash.checker import Checker
from tests.crash.history_power import OPTIONS, KeptHistory, Noting
from tests.crash.loop import Crash

SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN
NO_LOG_FLUSH = 2
IMAGE_BYTES = 1 << 30
MOUNTS = ("defaults", "noauto_da_alloc")


class NotAble(Exception):
    """This machine cannot cut the power of a file system; the text says why."""


def run(*command: str) -> str:
    """A command's output. Raises NotAble with its errors."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise NotAble(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout.strip()


def halt(pid: int) -> None:
    """Returns when no thread of a process does anything any more; one that waits for the disk may
    wait on, in the kernel, and gets no further."""
    os.kill(pid, signal.SIGSTOP)
    states = {"R"}
    while not states <= set("TDZX"):
        states = set()
        for path in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                states.add((path / "stat").read_text().rpartition(")")[2].split()[0])


class Powered(Leveret):
    """A broker on a file system of its own, beside it the process of tiers if wanted; `kill` cuts
    that file system's power."""

    def __init__(self, base: Path, *, has_tiers: bool = False) -> None:
        if os.geteuid() != 0:
            raise NotAble("only root can mount")
        self.mount_point = base / "mnt"
        self.mount_point.mkdir()
        self.cuts = 0
        image = base / "image"
        with image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        run("mkfs.ext4", "-q", str(image))
        self.device = run("losetup", "-f", "--show", str(image))
        super().__init__(self.mount_point / "broker")
        data = self.directory / "data"
        self.tiers = Appliance("tiers", base, data_dir=data) if has_tiers else None
        self._mount()

    def start(self) -> None:
        super().start()
        if self.tiers is not None:
            self.tiers.start(wait=False)

    def _mount(self) -> None:
        options = MOUNTS[self.cuts % len(MOUNTS)]
        run("mount", "-o", options, self.device, str(self.mount_point))

    def kill(self) -> None:
        assert self.server is not None
        halt(self.server.pid)
        if self.tiers is not None and self.tiers.process is not None:
            halt(self.tiers.process.pid)
        descriptor = os.open(self.mount_point, os.O_RDONLY)
        fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        os.close(descriptor)
        super().kill()
        self._kill_tiers()
        run("umount", str(self.mount_point))
        self.cuts += 1
        self._mount()

    def stop(self) -> None:
        self._kill_tiers()
        super().stop()

    def _kill_tiers(self) -> None:
        if self.tiers is not None and self.tiers.process is not None:
            self.tiers.kill()

    def release(self) -> None:
        """Gives the loop device back."""
        subprocess.run(["umount", str(self.mount_point)], capture_output=True)
        subprocess.run(["losetup", "-d", self.device], capture_output=True)


def cut_power(options: argparse.Namespace, victim: Powered, base: Path) -> bool:
    """Whether all cuts did what they may."""
    began = time.monotonic()
    checker = Noting(options.seed) if options.history else Checker()
    crash = Crash(victim, base / "journals", run=options.seed, seed=options.seed, checker=checker)
    history = None
    if isinstance(checker, Noting):
        crash.options = [OPTIONS]
        victim.extra = OPTIONS
        history = KeptHistory(victim.directory / "data", checker, options.seed)
    crash.prepare()
    if history is not None:
        history.prepare()
    clean = True
    while clean and victim.cuts < options.cuts:
        verdict = crash.cycle()
        # Acks of the last 200 ms may be undone.
        clean = not any(count for fault, count in verdict.faults.items() if fault != "resurrected")
        print(f"{victim.cuts} cuts at {time.monotonic() - began:.0f} s: {verdict}", flush=True)
        if history is not None:
            for each in (wrong := history.wrong())[:10]:
                print(f"  {each}")
            clean = clean and not wrong
            print(
                f"  {history.read:,} records and events, {history.objects} segments in the object "
                f"store, {history.index_objects} files of the index put there since the start",
                flush=True,
            )
    print(
        f"seed {options.seed}: {victim.cuts} power cuts, {checker.verdict.confirmed:,} confirmed; "
        f"{'0 lost or altered' if clean else 'FAULTS'}; {time.monotonic() - began:.0f} s"
    )
    return clean


def main() -> int:
    """Exit status 1 if a message went wrong, 2 if this machine is not able."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.power")
    parser.add_argument("--cuts", type=int, default=20, help="power cuts (20)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--history", action="store_true", help="with a history, index and tier")
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="leveret-power-"))
    victim = None
    try:
        victim = Powered(base, has_tiers=options.history)
        return 0 if cut_power(options, victim, base) else 1
    except NotAble as error:
        print(f"power cuts need root, mkfs.ext4 and a loop device: {error}", file=sys.stderr)
        return 2
    finally:
        if victim is not None:
            victim.stop()
            victim.release()
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())

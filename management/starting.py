"""What has to hold before an appliance starts: a data directory of its own, and free ports."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

from broker.settings.config import Config

LOOK_AGAIN_S = 0.05
#: Setting and note of each listener that may get its port from the kernel.
PORTS = {
    "broker": {
        "amqp": "amqp_port",
        "amqps": "amqps_port",
        "ws": "ws_port",
        "wss": "wss_port",
        "metrics": "metrics_port",
    },
    "web": {"http": "http_port", "https": "https_port"},
    "reports": {},
    "bridges": {},
    "tiers": {},
}
TLS_PORTS = ("amqps_port", "wss_port", "https_port")
PROGRAMS = (b"manage.py", b"leveret", b"management")


class StartError(Exception):
    """The appliance cannot start; the text is the one line to print."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


def prepare(config: Config) -> None:
    """Make the data directory and wait for what a killed supervisor's children still hold.

    Raises `StartError` if the directory cannot be used or belongs to a running appliance.
    """
    try:
        config.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        config.run_dir.mkdir(mode=0o700, exist_ok=True)
        lock = os.open(config.data_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StartError(
            f"cannot use {config.data_dir} as data directory: {error.strerror}", os.EX_CANTCREAT
        ) from None
    try:
        # Not held meanwhile: a part that ends would wait for a broker that it believes to be there.
        deadline = time.monotonic() + config.stop_timeout
        while remaining(config) and time.monotonic() < deadline:
            time.sleep(LOOK_AGAIN_S)
        left = remaining(config)
        if left:
            raise StartError(
                f"the data directory {config.data_dir} is in use by {_parts(left)}, which an"
                f" earlier start has left: it did not end within stop_timeout"
                f" ({config.stop_timeout:g} s)",
                os.EX_TEMPFAIL,
            )
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StartError(
                f"the data directory {config.data_dir} is in use by a running broker",
                os.EX_TEMPFAIL,
            ) from None
    finally:
        os.close(lock)


def check_ports(config: Config) -> None:
    """Raise `StartError` for a port that is taken, before anything else is done.

    The children bind for themselves; this only says it early, in one line, and before a large
    store has been read.
    """
    names = [name for ports in PORTS.values() for name in ports.values()]
    for name in names:
        port = getattr(config, name)
        if port <= 0 or (name in TLS_PORTS and config.tls_cert_file is None):
            continue
        for host in config.bind:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            try:
                socket.create_server((host, port), family=family).close()
            except OSError as error:
                option = "--" + name.replace("_", "-")
                raise StartError(
                    f"cannot listen on {host} port {port}: {os.strerror(error.errno or 0)};"
                    f" choose another with {option}",
                    os.EX_UNAVAILABLE,
                ) from None


def remaining(config: Config) -> dict[str, int]:
    """Children, still ending, of an earlier supervisor of this directory that is gone itself: the
    process of each by its name."""
    found = noted(config)
    return {} if "supervisor" in found else found


def noted(config: Config) -> dict[str, int]:
    """The processes of the appliance that its supervisor has noted and that still run, by name."""
    note = read_note(config.addresses_file)
    pids, starts = note.get("pid"), note.get("started", {})
    if not isinstance(pids, dict) or note.get("boot", boot()) != boot():
        return {}
    starts = starts if isinstance(starts, dict) else {}
    return {name: pid for name, pid in pids.items() if is_ours(pid, starts.get(name))}


def lone_broker(config: Config) -> int | None:
    """The broker that has this directory; it has noted its number itself."""
    pid = read_note(config.run_dir / "broker.json").get("pid")
    # A power cut leaves the note, and another program may have the number since.
    if isinstance(pid, int) and is_ours(pid) and _has_locked(pid, config.data_dir / "lock"):
        return pid
    return None


def _has_locked(pid: int, path: Path) -> bool:
    """Whether the process holds the lock. It is not tried: a broker that starts at this moment must
    find it free."""
    try:
        inode = path.stat().st_ino
        locks = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return False
    rows = [line.split() for line in locks]
    return any(
        row[1] == "FLOCK" and row[4] == str(pid) and row[5].endswith(f":{inode}") for row in rows
    )


def _parts(left: dict[str, int]) -> str:
    """For people: `web (process 12) and tiers (process 13)`."""
    return " and ".join(f"{name} (process {pid})" for name, pid in left.items())


def is_ours(pid: Any, started: Any = None) -> bool:
    """Whether a process of this number runs a command of ours, and is not this one; numbers are
    given out again. `started`: when it has to have started (`start_of`)."""
    if not isinstance(pid, int) or pid == os.getpid():
        return False
    if started is not None and start_of(pid) != started:
        return False
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return any(word.rpartition(b"/")[2] in PROGRAMS for word in command.split(b"\0"))


def start_of(pid: int) -> int | None:
    """When the process started, in ticks since the machine's start; None if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(stat.rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None


def boot() -> str:
    """Which start of the machine this is."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def read_note(path: Path) -> dict[str, Any]:
    """A small JSON object that another process wrote; empty when it is not there."""
    try:
        note = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}

"""The supervisor: starts the parts of the appliance, watches, restarts and stops them in order.

Each child runs in its own process session, so that Ctrl-C reaches only the supervisor, and holds
the reading end of the lifetime pipe (`broker.process.lifetime`), so that none outlives it.

A child that ends before the whole appliance was ready once is a failed start: everything stops
and its exit status becomes the supervisor's. Later a child that ends is started again, after a
wait that doubles from 0.5 to 30 seconds. A broker that ended because a sync failed stays down:
starting it again is a decision for a person who has looked at the disk. A child that hangs, by the
signs of life that it gives (`management.alive`), is killed, and started again in the same way. What
starts again has the settings in force: those that take effect after a restart wait for that of the
whole appliance, and a file that cannot be read any more keeps no part down.

SIGHUP reads the settings again, here and in the children; when the terminal it was started from is
gone, it ends the appliance instead.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker.process import lifetime, pulse
from broker.serving import reloading
from broker.settings.config import IN_FORCE, Config, ConfigError, in_force
from management import alive
from management.starting import (
    PORTS,
    StartError,
    boot,
    check_ports,
    prepare,
    read_note,
    start_of,
)

log = logging.getLogger(__name__)

EXIT_SYNC_FAILED = 74  # EX_IOERR: the broker's status when a sync failed
BACKOFF_FIRST = 0.5
BACKOFF_MAX = 30.0
STEADY_AFTER = 60.0  # a child that ran this long is started again without a wait
READY_POLL = 0.05
LONG_STOP_S = 5.0  # a part that takes longer to stop is named in the log
STOP_ORDER = ("bridges", "reports", "tiers", "web", "broker")
MANAGE = Path(__file__).resolve().parent.parent / "manage.py"
# An installed package has no manage.py.
COMMAND = [sys.executable, *([str(MANAGE)] if MANAGE.exists() else ["-m", "management"])]


def main(config: Config, argv: Sequence[str]) -> int:
    """Run the appliance until SIGINT or SIGTERM; `argv` goes to the children as it is."""
    started = time.monotonic()
    try:
        prepare(config)
        check_ports(config)
    except StartError as error:
        print(f"leveret serve: {error}", file=sys.stderr)
        return error.status
    return Supervisor(config, COMMAND, argv, started).run()


def catches_hangup(pid: int) -> bool:
    """Whether a process has a handler for SIGHUP yet; without one it would end."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (signal.SIGHUP - 1) & 1)


def _is_terminal() -> bool:
    try:
        return os.isatty(sys.stdin.fileno())
    except (AttributeError, OSError, ValueError):  # closed
        return False


def _remove(path: Path) -> None:
    """At the end. A disk that can no longer be written to must not hide how everything ended."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


@dataclass
class Child:
    """One process of the appliance, through all its starts."""

    name: str
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    start_at: float | None = 0.0
    backoff: float = 0.0
    ready: bool = False
    addresses: dict[str, list[Any]] = field(default_factory=dict)
    watch: alive.Watch | None = None
    """Of the run under way."""
    reload_due: bool = False
    """Settings have changed, and it could not take the signal yet."""


class Supervisor:
    """Owns the children. `command` is what starts one, before its name and the options."""

    def __init__(
        self, config: Config, command: Sequence[str], argv: Sequence[str], started: float
    ) -> None:
        self.config = config
        self.command = list(command)
        self.argv = list(argv)
        self.started = started
        self.children = {name: Child(name) for name in PORTS}
        self.status: int | None = None
        self.announced = False
        self.first_user = ""
        """The user that the broker made for a new data directory."""
        self.lifetime_read, self.lifetime_write = os.pipe()
        self.wake_read, self.wake_write = os.pipe()
        os.set_blocking(self.wake_read, False)
        os.set_blocking(self.wake_write, False)
        self.next_look = time.monotonic() + alive.LOOK_S
        self.interrupts = 0
        self.reload_asked = False
        self.addresses_due = False
        """The file of addresses is behind: the disk took nothing."""
        self.had_terminal = _is_terminal()
        self.broker_failed = False

    def run(self) -> int:
        signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._interrupted)
        signal.signal(signal.SIGHUP, self._hung_up)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only to be woken
        try:
            while self.status is None:
                self._start_due()
                self._reap()
                self._look_for_ready()
                self._look_for_hanging()
                if self.reload_asked:
                    self._reload()
                self._pass_on_reload()
                if self.addresses_due:
                    self._write_addresses()
                if self.status is None:
                    self._sleep()
        finally:
            status = self._stop()
        return status

    def _interrupted(self, number: int, _frame: Any) -> None:
        self.interrupts += 1
        if self.status is None:
            self.status = 0

    def _hung_up(self, number: int, frame: Any) -> None:
        """Read the settings again; but when the terminal is gone the appliance ends with it."""
        if self.had_terminal and not _is_terminal():
            self._interrupted(number, frame)
        else:
            self.reload_asked = True

    def _reload(self) -> None:
        """Read the settings again, and let the children do so if they can be used."""
        self.reload_asked = False
        try:
            reloaded = reloading.read_again(self.config, os.environ)
        except ConfigError as error:
            reloading.refuse(log, error)
            return
        self.config = reloaded.config
        reloading.follow(log, "serve", reloaded)
        for child in self.children.values():
            child.reload_due = child.process is not None

    def _pass_on_reload(self) -> None:
        """Let the children read the settings again, each once it takes the signal: one that is in
        its start has read them before they changed."""
        for child in self.children.values():
            if child.reload_due and child.process and catches_hangup(child.process.pid):
                child.reload_due = False
                child.process.send_signal(signal.SIGHUP)

    def _sleep(self) -> None:
        due = [child.start_at for child in self.children.values() if child.start_at is not None]
        timeout = max(0.0, min([self.next_look, *due]) - time.monotonic())
        if any(child.reload_due or not child.ready for child in self._running()):
            timeout = min(timeout, READY_POLL)
        select.select([self.wake_read], [], [], timeout)
        self._drain()

    def _running(self) -> list[Child]:
        return [child for child in self.children.values() if child.process is not None]

    def _drain(self) -> None:
        try:
            while os.read(self.wake_read, 512):
                pass
        except BlockingIOError:
            pass

    # --- starting ----------------------------------------------------------------------------

    def _start_due(self) -> None:
        now = time.monotonic()
        for child in self.children.values():
            if child.start_at is not None and child.start_at <= now:
                self._start(child)

    def _start(self, child: Child) -> None:
        child.start_at = None
        child.started_at = time.monotonic()
        child.ready = not PORTS[child.name]  # it listens nowhere
        child.reload_due = False
        try:
            self._note(child).unlink(missing_ok=True)
            child.watch = alive.Watch(self.config.hang_timeout)
            child.process = self._spawn(child, child.watch)
        except OSError as error:
            self._close_watch(child)
            self._not_started(child, error)
            return
        self._write_addresses()

    def _spawn(self, child: Child, watch: alive.Watch) -> subprocess.Popen[bytes]:
        ports = self._kept_ports(child)
        options = []
        for name, port in ports.items():
            options += ["--" + name.replace("_", "-"), str(port)]
        process = subprocess.Popen(
            [*self.command, child.name, *self.argv, *options],
            env={
                **os.environ,
                lifetime.VARIABLE: str(self.lifetime_read),
                pulse.VARIABLE: str(watch.write),
                IN_FORCE: in_force(self.config, ports),
            },
            stdin=subprocess.DEVNULL,
            pass_fds=[self.lifetime_read, watch.write],
            start_new_session=True,
        )
        watch.handed_over()
        return process

    def _not_started(self, child: Child, error: OSError) -> None:
        """The machine has no room for a process at this moment."""
        if not self.announced:
            print(f"leveret serve: cannot start {child.name}: {error.strerror}", file=sys.stderr)
            self.status = os.EX_OSERR
            return
        self._start_later(child)
        log.error(
            "cannot start %s: %s; it is tried again in %g s",
            child.name,
            error.strerror,
            child.backoff,
        )

    def _start_later(self, child: Child) -> None:
        child.backoff = min(max(child.backoff * 2, BACKOFF_FIRST), BACKOFF_MAX)
        child.start_at = time.monotonic() + child.backoff

    def _kept_ports(self, child: Child) -> dict[str, int]:
        """Settings of ports that the kernel chose at the child's first start, and that it keeps."""
        ports = {}
        for listener, name in PORTS[child.name].items():
            if getattr(self.config, name) in (0, -1) and listener in child.addresses:
                ports[name] = int(child.addresses[listener][1])
        return ports

    def _note(self, child: Child) -> Path:
        """Where a child says that it listens, and where."""
        return self.config.run_dir / f"{child.name}.json"

    def _look_for_ready(self) -> None:
        changed = False
        for child in self.children.values():
            if child.ready or child.process is None:
                continue
            note = read_note(self._note(child))
            pid = note.pop("pid", None)
            if pid == child.process.pid or (
                isinstance(pid, dict) and pid.get(child.name) == child.process.pid
            ):
                child.addresses = {key: note[key] for key in PORTS[child.name] if key in note}
                child.ready = changed = True
                self.first_user = note.get("first_user", "") or self.first_user
        if changed:
            self._write_addresses()
            if not self.announced and all(child.ready for child in self.children.values()):
                self.announced = True
                print(self._announcement(), flush=True)

    def _look_for_hanging(self) -> None:
        if time.monotonic() < self.next_look:
            return
        self.next_look = time.monotonic() + alive.LOOK_S
        for child in self._running():
            assert child.process is not None and child.watch is not None
            # One that is not ready may read a large store, or import many definitions.
            if not child.watch.hangs() or not child.ready:
                continue
            if alive.waits_for_disk(child.process.pid):
                if not child.watch.disk_told:
                    log.error("%s waits for the disk and does nothing else", child.name)
                child.watch.disk_told = True
                continue
            log.error("%s has hung for %g s; it is killed", child.name, self.config.hang_timeout)
            child.process.kill()

    def _unfinished_addresses(self) -> Path:
        return self.config.addresses_file.with_suffix(".new")

    def _write_addresses(self) -> None:
        """Write down where everything is. On a full disk it is tried again at each turn."""
        merged: dict[str, Any] = {}
        pids = {"supervisor": os.getpid()}
        for child in self._running():
            assert child.process is not None
            pids[child.name] = child.process.pid
        for child in self.children.values():
            merged.update(child.addresses)
        # Numbers of processes are given out again, and after a power cut the file is still there.
        starts = {name: start_of(pid) for name, pid in pids.items()}
        note = {**merged, "pid": pids, "started": starts, "boot": boot()}
        file = self.config.addresses_file
        temporary = self._unfinished_addresses()
        try:
            temporary.write_text(json.dumps(note) + "\n", encoding="utf-8")
            temporary.replace(file)
        except OSError as error:
            if not self.addresses_due:
                log.error("cannot write %s: %s; it is tried again", file, error.strerror)
            self.addresses_due = True
        else:
            self.addresses_due = False

    def _announcement(self) -> str:
        listeners = {**self.children["broker"].addresses, **self.children["web"].addresses}
        rows = []
        for listener, title, scheme, path in (
            ("amqp", "AMQP", "amqp", ""),
            ("amqps", "AMQP, TLS", "amqps", ""),
            ("ws", "WebSocket", "ws", ""),
            ("wss", "WebSocket, TLS", "wss", ""),
            ("http", "Web app", "http", "/"),
            ("https", "Web app, TLS", "https", "/"),
            ("metrics", "Metrics", "http", "/metrics"),
        ):
            if listener in listeners:
                host, port = listeners[listener][:2]
                shown = f"[{host}]" if ":" in str(host) else host
                rows.append((title, f"{scheme}://{shown}:{port}{path}"))
        if self.config.unix_path is not None:
            rows.append(("Unix socket", str(self.config.unix_path)))
        rows.append(("Sign in", self._sign_in()))
        rows.append(("Data", str(self.config.data_dir)))
        lines = [f"  {title:<14} {text}" for title, text in rows]
        if self.config.no_sync:
            lines.append("  --no-sync is set: a power cut may lose confirmed messages")
        took = time.monotonic() - self.started
        return "\n".join(["Leveret", *lines, f"ready in {took:.1f} s; Ctrl-C stops it"])

    def _sign_in(self) -> str:
        name = self.first_user
        if not name:
            return "with the users of this data directory"
        if name == self.config.default_password == "guest":
            return "guest / guest (from this machine only)"
        return f"{name}, with the password that was configured"

    # --- watching ----------------------------------------------------------------------------

    def _reap(self) -> None:
        for child in self.children.values():
            if child.process is not None and self._has_ended(child):
                status = self._collect(child)
                if self.status is None:
                    self._ended(child, status)

    def _has_ended(self, child: Child) -> bool:
        assert child.process is not None
        if child.process.returncode is not None:
            # Sending it a signal has asked for its end already, and taken its status.
            return True
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, child.process.pid, flags) is not None

    def _collect(self, child: Child) -> int:
        """Kill what the ended child left running in its session, then reap it."""
        assert child.process is not None
        try:
            # Before reaping: until then its number cannot belong to anyone else.
            os.killpg(child.process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        status = child.process.wait()
        child.process = None
        child.ready = False
        self._close_watch(child)
        return status

    def _close_watch(self, child: Child) -> None:
        if child.watch is not None:
            child.watch.close()
            child.watch = None

    def _ended(self, child: Child, status: int) -> None:
        how = f"signal {-status}" if status < 0 else f"status {status}"
        if not self.announced:
            # Statuses of sysexits.h come with a line of the child's own.
            if not os.EX_USAGE <= status <= os.EX_CONFIG:
                print(f"leveret serve: {child.name} ended at its start with {how}", file=sys.stderr)
            self.status = status if status > 0 else 1
            return
        if child.name == "broker" and status == EXIT_SYNC_FAILED:
            self.broker_failed = True
            log.error(
                "the broker ended because a sync failed and stays down: look at the disk of %s,"
                " then restart the appliance",
                self.config.data_dir,
            )
            return
        if time.monotonic() - child.started_at >= STEADY_AFTER:
            child.backoff = 0.0
        self._start_later(child)
        log.error("%s ended with %s; it is started again in %g s", child.name, how, child.backoff)

    # --- stopping ----------------------------------------------------------------------------

    def _stop(self) -> int:
        status = self.status if self.status is not None else 1
        if self.broker_failed and status == 0:
            status = EXIT_SYNC_FAILED
        for name in STOP_ORDER:
            child = self.children[name]
            if child.process is not None:
                ended = self._stop_child(child)
                if status == 0 and ended not in (0, -signal.SIGTERM):
                    status = ended if ended > 0 else 1
        for child in self.children.values():
            _remove(self._note(child))
        _remove(self.config.addresses_file)
        _remove(self._unfinished_addresses())
        os.close(self.lifetime_write)
        if self.announced:
            print("stopped", flush=True)
        return status

    def _stop_child(self, child: Child) -> int:
        """Ask, wait, and kill when the wait is over or the person asks a second time."""
        assert child.process is not None
        process = child.process
        process.terminate()
        began = time.monotonic()
        deadline = began + self.config.stop_timeout
        while not self._has_ended(child):
            left = deadline - time.monotonic()
            if left <= 0 or self.interrupts > 1:
                log.error("%s did not stop in time; it is killed", child.name)
                process.kill()
                break
            select.select([self.wake_read], [], [], left)
            self._drain()
        took = time.monotonic() - began
        if took > LONG_STOP_S:
            log.info("%s took %.1f s to stop", child.name, took)
        return self._collect(child)

"""Leveret under measurement: the broker process alone, on a data directory of its own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench import processes

REPOSITORY = Path(__file__).resolve().parents[2]


class Leveret:
    """`manage.py broker` on ephemeral ports of loopback. `extra` goes to its command line; `tree`
    is the checkout it runs from. `tls` is a certificate with its key: then it listens for TLS."""

    def __init__(
        self,
        directory: Path,
        extra: list[str] | None = None,
        command: list[str] | None = None,
        *,
        tree: Path = REPOSITORY,
        name: str = "Leveret",
        tls: Path | None = None,
    ) -> None:
        self.name = name
        self.tree = tree
        self.directory = directory
        self.extra = extra or []
        self.command = command or [sys.executable, str(tree / "manage.py"), "broker"]
        self.port = 0
        self.ports: dict[str, int] = {}
        self.tls = tls
        self.server: subprocess.Popen[bytes] | None = None
        self.environment: dict[str, str] = {}
        self.patience = 60.0  # seconds that a start may take

    @property
    def version(self) -> str:
        """The commit measured."""
        command = ["git", "-C", str(self.tree), "describe", "--always", "--dirty"]
        return subprocess.run(command, capture_output=True, text=True).stdout.strip() or "unknown"

    def start(self) -> None:
        """Starts the broker and waits for its addresses.

        Raises RuntimeError with the end of its output if it ends instead.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        addresses = self.directory / "data/run/broker.json"
        addresses.unlink(missing_ok=True)
        arguments = ["--data-dir", str(self.directory / "data")]
        config = next(self.tree.glob("broker/**/config.py"))  # an older checkout has it elsewhere
        if "disk_reserve" in config.read_text():
            arguments += ["--disk-reserve", "0"]
        arguments += ["--amqp-port", "0", "--ws-port", "0", "--metrics-port", "0"]
        if self.tls:
            arguments += ["--amqps-port", "0", "--tls-cert-file", str(self.tls)]
            arguments += ["--tls-key-file", str(self.tls)]
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("LEVERET_")}
        # The broker ends when this process does, however it ends (broker/process/lifetime.py).
        read_end, self.lifetime = os.pipe()
        inherited["LEVERET_LIFETIME_FD"] = str(read_end)
        with (self.directory / "output").open("ab") as output:
            self.server = subprocess.Popen(
                [*self.command, *arguments, *self.extra],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.tree,
                start_new_session=True,
                pass_fds=[read_end],
                env={**inherited, "LEVERET_CONFIG": "", **self.environment},
            )
        os.close(read_end)
        deadline = time.monotonic() + self.patience
        while True:
            try:
                listeners = json.loads(addresses.read_text())
                doors = [door for door in ("amqp", "amqps", "ws") if door in listeners]
                self.ports = {door: listeners[door][1] for door in doors}
                self.port = self.ports["amqp"]
                return
            except (OSError, ValueError, KeyError, IndexError, TypeError):
                if self.server.poll() is not None or time.monotonic() > deadline:
                    self.stop()
                    text = (self.directory / "output").read_text(errors="replace")
                    raise RuntimeError(f"the broker did not start:\n{text[-2000:]}") from None
                time.sleep(0.02)

    def pids(self) -> list[int]:
        """The broker process (and children, should it ever have any)."""
        return processes.family(self.server.pid) if self.server else []

    def kill(self) -> None:
        """kill -9, and waits until the process is gone."""
        if self.server is not None:
            self.server.kill()
            self.server.wait()
            self._ended()

    def stop(self) -> None:
        """A clean stop (SIGTERM)."""
        if self.server is not None:
            processes.end(self.server)
            self._ended()

    def _ended(self) -> None:
        self.server = None
        os.close(self.lifetime)


@contextlib.contextmanager
def running(against: Path | None) -> Iterator[list[Leveret]]:
    """This checkout's broker and, beside it, one called `before` from another checkout."""
    with tempfile.TemporaryDirectory() as directory:
        brokers = [Leveret(Path(directory) / "leveret")]
        if against:
            tree = against.resolve()
            brokers.append(Leveret(Path(directory) / "before", tree=tree, name="before"))
        try:
            for broker in brokers:
                broker.start()
            yield brokers
        finally:
            for broker in brokers:
                broker.stop()

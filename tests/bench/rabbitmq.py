"""Debian's rabbitmq-server as the peer: unpacked without installing, private ports, own epmd."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from tests.bench import processes
from tests.bench.client import Client, ConnectionLost
from tests.bench.generator import cache_directory


class NotAvailable(Exception):
    """rabbitmq-server can neither be found nor unpacked; says why."""


def _names_to_unpack() -> list[str]:
    """rabbitmq-server and the Erlang packages apt would install with it on an empty machine."""
    options = ["-s", "--no-install-recommends", "-o", "Dir::State::status=/dev/null"]
    command = ["apt-get", "install", *options, "rabbitmq-server"]
    listed = subprocess.run(command, capture_output=True, text=True)
    names = [line.split()[1] for line in listed.stdout.splitlines() if line.startswith("Inst ")]
    if "rabbitmq-server" not in names:
        raise NotAvailable("apt knows no rabbitmq-server (apt-get update helps on a new machine)")
    wanted = ("rabbitmq-server", "libsctp1")
    return [name for name in names if name.startswith("erlang-") or name in wanted]


def _unpack() -> Path:
    """Root directory of an unpacked rabbitmq-server; downloads it from apt once."""
    root = cache_directory() / "rabbitmq"
    if (root / "complete").exists():
        return root
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise NotAvailable("no apt-get and dpkg here")
    shutil.rmtree(root, ignore_errors=True)
    packages = root / "packages"
    packages.mkdir(parents=True)
    names = _names_to_unpack()
    command = ["apt-get", "download", *names]
    done = subprocess.run(command, cwd=packages, capture_output=True, text=True)
    files = sorted(packages.glob("*.deb"))
    if done.returncode or len(files) < len(names):
        raise NotAvailable(f"apt-get download failed: {done.stderr.strip().splitlines()[-1:]}")
    for file in files:
        subprocess.run(["dpkg", "-x", str(file), str(root)], check=True)
    erlang = root / "usr/lib/erlang"
    for script in [erlang / "bin/erl", *erlang.glob("erts-*/bin/erl")]:
        if script.exists() and not script.is_symlink():
            script.write_text(script.read_text().replace("/usr/lib/erlang", str(erlang)))
    shutil.rmtree(packages)
    (root / "complete").touch()
    return root


def _locate() -> tuple[Path, Path]:
    """(directory with rabbitmq-server's own scripts, directory with erl and epmd)."""
    installed = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin"))
    if installed and shutil.which("erl"):
        return installed[-1], Path("/usr/lib/erlang/bin")
    root = _unpack()
    scripts = sorted((root / "usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin"))
    return scripts[-1], root / "usr/lib/erlang/bin"


class RabbitMQ:
    """One node in a directory of its own: loopback only, no plugins unless named, private cookie
    and epmd."""

    name = "RabbitMQ"

    def __init__(
        self, directory: Path, plugins: tuple[str, ...] = (), tls: Path | None = None
    ) -> None:
        self.plugins = plugins
        self.tls = tls
        self.ports: dict[str, int] = {}
        self.environment: dict[str, str] = {}
        self.http_port = 0
        """The management plugin's, where it is among the plugins."""
        self.scripts, self.erlang = _locate()
        self.version = self.scripts.parent.name.rpartition("-")[2]
        self.directory = directory
        self.extra: list[str] = []  # no options: there for being used like Leveret
        self.port = 0
        self.server: subprocess.Popen[bytes] | None = None
        self.epmd: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts epmd and the node; waits until a client can log in, else raises NotAvailable."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.port = self.port or processes.free_port()  # the node's name holds it: kept for life
        distribution, epmd_port = processes.free_port(), processes.free_port()
        plugins = self.directory / "enabled_plugins"
        plugins.write_text(f"[{','.join(self.plugins)}].\n")
        configuration = self.directory / "rabbitmq.conf"
        configuration.write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\n"
            "log.console = false\nlog.file.level = error\n"
            "disk_free_limit.absolute = 100MB\nvm_memory_high_watermark.relative = 0.6\n"
        )
        self.ports["amqp"] = self.port
        if self.tls:
            self.ports["amqps"] = self.ports.get("amqps") or processes.free_port()
            with configuration.open("a") as file:
                file.write(
                    f"listeners.ssl.1 = 127.0.0.1:{self.ports['amqps']}\n"
                    f"ssl_options.certfile = {self.tls}\nssl_options.keyfile = {self.tls}\n"
                )
        if "rabbitmq_management" in self.plugins:
            self.http_port = self.http_port or processes.free_port()
            with configuration.open("a") as file:
                file.write(
                    f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {self.http_port}\n"
                )
        environment = {
            "PATH": f"{self.erlang}:{os.environ['PATH']}",
            "HOME": str(self.directory),
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"bench{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_MNESIA_BASE": str(self.directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.directory / "log"),
            "RABBITMQ_PID_FILE": str(self.directory / "pid"),
            "RABBITMQ_CONFIG_FILE": str(configuration),
            "RABBITMQ_CONF_ENV_FILE": str(self.directory / "none.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self.directory / "none.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
            "RABBITMQ_SERVER_START_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }
        self.environment = environment
        command = [str(self.erlang / "epmd"), "-port", str(epmd_port), "-address", "127.0.0.1"]
        self.epmd = subprocess.Popen(command, env=environment)
        with (self.directory / "output").open("wb") as output:
            self.server = subprocess.Popen(
                [str(self.scripts / "rabbitmq-server")],
                env=environment,
                stdout=output,
                stderr=output,
                cwd=self.directory,
                start_new_session=True,
            )
        deadline = time.monotonic() + 150
        while True:
            try:
                Client(self.port).close()
                return
            except (ConnectionLost, OSError):
                if self.server.poll() is not None or time.monotonic() > deadline:
                    self.stop()
                    text = (self.directory / "output").read_text(errors="replace")
                    raise NotAvailable(f"rabbitmq-server did not start: {text[-500:]}") from None
                time.sleep(0.25)

    def control(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs rabbitmqctl on the node."""
        return subprocess.run(
            [str(self.scripts / "rabbitmqctl"), *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def pids(self) -> list[int]:
        """beam, the shell around it and Erlang's port programs; not epmd, idle per message."""
        return processes.family(self.server.pid) if self.server else []

    def kill(self) -> None:
        """kill -9 of the node and everything it started."""
        if self.server is not None and self.epmd is not None:
            for pid in self.pids():
                os.kill(pid, signal.SIGKILL)
            self.server.wait()
            self.server = None
            processes.end(self.epmd)

    def stop(self) -> None:
        """Ends the node, then its epmd."""
        for process in (self.server, self.epmd):
            if process is not None:
                processes.end(process)
        self.server = self.epmd = None

"""Starts of the product in a fraction of their time: forks of a process that has imported it.

Most of what a start costs is importing, and the suite starts a broker or an appliance more than a
thousand times. So `Appliance` asks a process that holds all modules, also those of a first request,
and nothing else, no thread, no event loop, no settings, to fork: a tenth of the CPU of a start.
From then on the fork is as a start of `manage.py`: the same arguments, environment, files, session
and parent; `/proc/<pid>/cmdline` tells. At its end it does not take its modules apart, which would
copy the memory that forks share. A forked supervisor has its children forked in the same way.

The hash of the password `guest`, which each new data directory needs and most logins are compared
with, is computed once (`KnowsGuest`); every other password costs what it costs.

Only pytest has forks; programs that measure, crash or flood have real starts. So have tests of
starting, ending and memory (the fixture `real_starts`), and appliances with a program, environment,
directory or limit of their own. LEVERET_TEST_REAL_STARTS=1 has real ones everywhere.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import functools
import gc
import importlib
import json
import os
import pkgutil
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from broker import features

ROOT = Path(__file__).resolve().parent.parent
BROKER = (
    "management.__main__",
    "management.commands",
    "broker.server.app",
    "broker.server.metrics",
    *(
        f"broker.features.{name}.{module.name}"
        for name in features.NAMES
        for module in pkgutil.iter_modules([str(ROOT / "broker" / "features" / name)])
    ),
)
APPLIANCE = (
    *BROKER,
    "management.supervisor",
    "management.reports.process",
    "management.bridges.process",
    "management.tiers.process",
    "management.web",
    "management.http_protocol",
    "management.websocket_protocol",
)
"""What a start imports, also where the product imports it late. The web process's views are besides
(`_load_views`)."""
PR_SET_CHILD_SUBREAPER = 36
REQUEST_MAX = 1 << 17
FDS_MAX = 16
GUEST = b"guest"
SECRETS: tuple[tuple[str, str, Callable[[], object]], ...] = (
    ("broker.access.behalf", "TOKEN", lambda: secrets.token_hex(16)),
    ("management.seen", "_KEY", lambda: os.urandom(32)),
)
"""What a process makes by chance when it imports a module: forks have each their own."""

allowed = False
"""Whether appliances are started by forks; tests/conftest.py has it so."""

_libc = ctypes.CDLL(None, use_errno=True)
_ONE_AT_A_TIME = threading.Lock()


class Forked:
    """A fork that has become a child of this process, with what `subprocess.Popen` has for it."""

    def __init__(self, pid: int, args: Sequence[str]) -> None:
        self.pid = pid
        self.args = args
        self.returncode: int | None = None
        self._end = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """Its exit status, or None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
                os.close(self._end)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, as soon as it has one."""
        if self.poll() is None:
            ends = select.poll()
            ends.register(self._end, select.POLLIN)
            ends.poll(None if timeout is None else timeout * 1000)
        status = self.poll()
        if status is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return status

    def send_signal(self, number: int) -> None:
        """Nothing happens when it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Request(NamedTuple):
    """How a fork starts. `fds` are open in it under the same numbers, besides 0, 1 and 2."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    fds: Sequence[int]


class Server:
    """This process's end of the connection to the one that forks."""

    def __init__(self, connection: socket.socket, process: subprocess.Popen[bytes] | None) -> None:
        self._connection = connection
        self._process = process

    @classmethod
    def start(cls, modules: Sequence[str]) -> Server:
        """A new process that imports the modules; it ends with this one."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                # The supervisor knows processes of the product by the word `manage.py`.
                [sys.executable, "-m", "tests.forks", "manage.py", str(theirs.fileno()), *modules],
                cwd=ROOT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", "LEVERET_CONFIG": ""},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        return cls(ours, process)

    def run(self, request: Request, output: int, error: int) -> Forked:
        """Start `manage.py` with these arguments; `output` and `error` are descriptors."""
        fields = [list(request.argv), dict(request.environment), list(request.fds)]
        with _ONE_AT_A_TIME:
            # The fork's own parent ends at once. For this moment the kernel gives orphans to us.
            _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            try:
                descriptors = [output, error, *request.fds]
                socket.send_fds(self._connection, [json.dumps(fields).encode()], descriptors)
                pid = self._connection.recv(64)
            finally:
                _libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        if not pid:
            raise RuntimeError("the process that forks has ended; its standard error says why")
        return Forked(int(pid), request.argv)


@functools.cache
def server(what: str) -> Server:
    """The one for `manage.py broker`, or for `manage.py serve`."""
    return Server.start(BROKER if what == "broker" else APPLIANCE)


def serve(connection: socket.socket) -> Request:
    """Fork for each request until the other end is closed. Returns in the forks only."""
    while True:
        message, fds, _, _ = socket.recv_fds(connection, REQUEST_MAX, FDS_MAX)
        if not message:
            os._exit(0)
        told, tells = os.pipe()
        between = os.fork()
        if between == 0:
            pid = os.fork()
            if pid == 0:
                connection.detach()  # its number may get another file
                return _take_over(Request(*json.loads(message)), fds)
            os.write(tells, str(pid).encode())
            os._exit(0)  # the fork is an orphan now, and the asking process its new parent
        os.waitpid(between, 0)
        connection.send(os.read(told, 64))
        for fd in (told, tells, *fds):
            os.close(fd)


def _take_over(request: Request, fds: Sequence[int]) -> Request:
    """Give this fork what a process that the request's sender had started would have."""
    os.setsid()
    os.environ.clear()
    os.environ.update(request.environment)
    with Path(os.devnull).open() as nothing:
        kept = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 512) for fd in (nothing.fileno(), *fds)]
    for fd in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if fd not in (0, 1, 2, *kept):
            with contextlib.suppress(OSError):  # the listing's own
                os.close(fd)
    for fd, target in zip(kept, (0, 1, 2, *request.fds), strict=True):
        os.dup2(fd, target)
        os.close(fd)
    for module, name, secret in SECRETS:
        if module in sys.modules:
            setattr(sys.modules[module], name, secret())
    sys.argv = [str(ROOT / "manage.py"), *request.argv]
    sys.orig_argv = [sys.executable, *sys.argv]
    return request


def begin(request: Request) -> int:
    """What manage.py does, in a fork. Returns the exit status."""
    if request.argv[0] == "serve":
        _fork_children()
    from management.__main__ import main

    return main()


class KnowsGuest:
    """The hasher of passwords, but for one whose hash it knows: a broker makes this hash at its
    first start, and most tests log in with it."""

    def __init__(self, hasher: Any) -> None:
        self._hasher = hasher
        self._hash = hasher.hash(GUEST)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hasher, name)

    def hash(self, password: bytes) -> Any:
        return self._hash if password == GUEST else self._hasher.hash(password)

    def verify(self, hash: str, password: bytes) -> Any:
        return (password == GUEST and hash == self._hash) or self._hasher.verify(hash, password)


def _compute() -> None:
    """What every broker computes at its start, with the same result."""
    from broker.access import passwords
    from broker.server.control import node_verbs

    vars(passwords)["_hasher"] = KnowsGuest(passwords._hasher)
    node_verbs.version()


def _load_views() -> None:
    """What the web process imports for its first request. Django's settings depend on nothing that
    a fork is told; the rest of them it sets itself."""
    import django

    os.environ["DJANGO_SETTINGS_MODULE"] = "management.settings"
    django.setup()
    for module in ("management.asgi", "management.live", "management.urls"):
        importlib.import_module(module)


def end(status: int) -> None:
    """The end of the interpreter, less taking its modules apart: that would copy the memory that
    forks share."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def _fork_children() -> None:
    """Have the supervisor that this process will be fork its children too: by a fork of its own,
    made while nothing has begun."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        end(begin(serve(theirs)))
    theirs.close()
    forking = Server(ours, None)

    def start(
        command: Sequence[str], env: Mapping[str, str], pass_fds: Sequence[int], **_: Any
    ) -> Forked:
        return forking.run(Request(command[len(supervisor.COMMAND) :], env, pass_fds), 1, 2)

    from management import supervisor

    vars(supervisor)["subprocess"] = types.SimpleNamespace(Popen=start, DEVNULL=subprocess.DEVNULL)


if __name__ == "__main__":
    _, _, _descriptor, *_modules = sys.argv
    for _name in _modules:
        importlib.import_module(_name)
    if "management.web" in _modules:
        _load_views()
    _compute()
    gc.collect()
    gc.freeze()
    end(begin(serve(socket.socket(fileno=int(_descriptor)))))

"""The web process: `main` binds the ports, says where it is, and serves until told to stop."""

import asyncio
import contextlib
import json
import logging
import os
import resource
import signal
import socket
import sys
from asyncio import sslproto
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn

from broker.process import allocator, pulse
from broker.process.allocator import give_memory_back
from broker.process.garbage import Garbage
from broker.serving.certificates import CertificateError
from broker.serving.websocket_room import message_max
from broker.settings.bounds import TLS_READ
from management import priority, reload, secret_key, static_build
from management.event_loop import EventLoop

if TYPE_CHECKING:
    from broker.settings.config import Config

log = logging.getLogger(__name__)

STOP_PATIENCE_S = 3
DESCRIPTORS_KEPT = 100
GARBAGE_EVERY_S = 1.0
NOTE_AGAIN_S = 1.0
KEPT_LONGER_S = 1
"""A request may be on its way when `http_keep_alive` is over."""


def main(config: "Config") -> int:
    """Serve pages, API, live updates and the WebSocket relay until SIGTERM or Ctrl-C.

    Returns an exit status: 0, or `os.EX_UNAVAILABLE` when a port cannot be bound, or
    `os.EX_CONFIG` when a file of the data directory or the certificate cannot be used. The reason
    is printed as one line.
    """
    priority.give_way(config.web_nice)
    allocator.map_large_blocks()
    allocator.share_one_heap()
    # What reads reports has an allocator of its own, which keeps 17 MiB for later.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    try:
        prepare(config)
        sockets = bind(config)
        reload.CERTIFICATES.load(config)
        servers = [_server(config, name) for name, _ in sockets]
    except PortUnavailable as error:
        print(f"leveret web: {error}", file=sys.stderr)
        return os.EX_UNAVAILABLE
    except (OSError, ValueError, CertificateError) as error:
        print(f"leveret web: {error}", file=sys.stderr)
        return os.EX_CONFIG
    # asyncio's 256 KiB belong to each connection from its first moment.
    sslproto.SSLProtocol.max_size = TLS_READ
    with asyncio.Runner(loop_factory=EventLoop) as runner:
        runner.run(_serve(config, sockets, servers))
    return 0


def prepare(config: "Config") -> None:
    """Give Django's settings what only a running appliance knows, and load the apps."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "management.settings")
    import django
    from django.conf import settings

    config.run_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    settings.APPLIANCE = config
    settings.SECRET_KEY = secret_key.load_or_create(config.data_dir)
    settings.SESSION_COOKIE_AGE = config.session_lifetime
    settings.STATIC_ROOT = static_build.write(settings.STATIC_SOURCES, config.run_dir / "static")
    django.setup()


class PortUnavailable(Exception):
    pass


def bind(config: "Config") -> list[tuple[str, list[socket.socket]]]:
    """Bound sockets by listener name: `http`, and `https` if there is a certificate."""
    wanted = [("http", config.http_port)]
    if config.tls_cert_file is not None:
        wanted.append(("https", config.https_port))
    return [(name, _bind(name, config, port)) for name, port in wanted]


def _bind(name: str, config: "Config", port: int) -> list[socket.socket]:
    """A socket for each address; where the port is any free one, it is the same for all."""
    bound: list[socket.socket] = []
    for host in config.bind:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listener = socket.create_server((host, port), family=family, backlog=config.tcp_backlog)
        except OSError as error:
            for other in bound:
                other.close()
            raise PortUnavailable(
                f"cannot listen on {host} port {port}: {error.strerror}. Choose another with "
                f"--{name}-port or --bind."
            ) from None
        # Accepted sockets inherit it. asyncio sets it only where a socket names its protocol, which
        # those of `create_server` do not; then an answer's body waited for a delayed ACK (40 ms).
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        bound.append(listener)
        port = listener.getsockname()[1]
    return bound


class _Server(uvicorn.Server):
    """uvicorn in a loop of ours: it leaves the signals alone and says when it accepts."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.accepting = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.accepting.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _connections_max() -> int:
    """Connections to hold at a time; a relayed one takes two descriptors. Others get 503."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return max(hard // 2 - DESCRIPTORS_KEPT, 1)


def _server(config: "Config", name: str) -> _Server:
    from management.asgi import build
    from management.http_protocol import BoundedHTTP
    from management.websocket_protocol import PatientWebSocket

    connections_max = _connections_max()
    uvicorn_config = uvicorn.Config(
        build(config),
        http=BoundedHTTP,
        ws=PatientWebSocket,
        ws_max_size=message_max(config),
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        # A client that uses a connection until the announced end finds it open.
        headers=[("keep-alive", f"timeout={config.http_keep_alive:g}")],
        timeout_keep_alive=config.http_keep_alive + KEPT_LONGER_S,  # type: ignore[arg-type]
        backlog=config.tcp_backlog,
        limit_concurrency=connections_max,
        timeout_graceful_shutdown=STOP_PATIENCE_S,
    )
    uvicorn_config.load()
    if name == "https":
        uvicorn_config.ssl = reload.served_context()
    return _Server(uvicorn_config)


def _is_defect(record: logging.LogRecord) -> bool:
    """Whether a line of Django is about an unexpected exception: it logs every refusal, too."""
    return record.exc_info is not None


STRANGERS_FAULTS = (
    "Invalid HTTP request received.",
    "Unsupported upgrade request.",
    "Invalid UTF-8 sequence received from client.",
    "ASGI callable returned without completing handshake.",
)
"""What uvicorn logs, at times with a traceback, about invalid input and lost connections."""


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether a line of uvicorn is about a fault of ours. Invalid input must not fill the log, and
    a request that is cancelled because the web process stops is no fault."""
    error = record.exc_info[1] if record.exc_info else None
    return record.msg not in STRANGERS_FAULTS and not isinstance(error, asyncio.CancelledError)


async def _serve(
    config: "Config", sockets: list[tuple[str, list[socket.socket]]], servers: list[_Server]
) -> None:
    from management.sessions import SESSIONS

    # Each connection opening and closing is a line at level info, with names a client chose.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    logging.getLogger("uvicorn.error").addFilter(_is_ours)
    for name in ("django.request", "django.security.csrf"):
        logging.getLogger(name).addFilter(_is_defect)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, reload.ask)
    pulse.begin(loop.call_later)
    listening = asyncio.create_task(SESSIONS.listen(), name="session events")
    serving = [
        asyncio.create_task(server.serve(bound), name=name)
        for server, (name, bound) in zip(servers, sockets, strict=True)
    ]
    await asyncio.gather(*(server.accepting.wait() for server in servers))
    collecting = asyncio.create_task(_collect_garbage(servers), name="garbage")
    note = config.run_dir / "web.json"
    noting = asyncio.create_task(_keep_noting(note, sockets), name="note")
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([stopping, *serving], return_when=asyncio.FIRST_COMPLETED)
    noting.cancel()
    note.unlink(missing_ok=True)
    for server in servers:
        server.should_exit = True
    await asyncio.gather(*serving)
    beside = (listening, stopping, collecting, noting)
    for task in beside:
        task.cancel()
    await asyncio.gather(*beside, return_exceptions=True)


async def _collect_garbage(servers: list[_Server]) -> None:
    """Keeps long walks of Python's collector out of the loop, and gives memory back when the
    process is idle, until it is cancelled."""
    loop = asyncio.get_running_loop()
    garbage = Garbage(lambda: loop.run_in_executor(None, give_memory_back))
    garbage.start(loop.time())
    if isinstance(loop, EventLoop):
        loop.walk_over_young = garbage.walk_over_young
    try:
        while True:
            await asyncio.sleep(GARBAGE_EVERY_S)
            is_quiet = not any(server.server_state.connections for server in servers)
            garbage.tick(loop.time(), is_quiet)
    finally:
        if isinstance(loop, EventLoop):
            loop.walk_over_young = None
        garbage.stop()


async def _keep_noting(note: Path, sockets: list[tuple[str, list[socket.socket]]]) -> None:
    """Writes the note, and while the disk takes nothing tries again: pages are served meanwhile."""
    is_told = False
    while True:
        try:
            _write_note(note, sockets)
        except OSError as error:
            if not is_told:
                log.error(
                    "cannot write %s: %s; it is tried again every %g s",
                    note,
                    error.strerror,
                    NOTE_AGAIN_S,
                )
            is_told = True
            await asyncio.sleep(NOTE_AGAIN_S)
        else:
            return


def _write_note(path: Path, sockets: list[tuple[str, list[socket.socket]]]) -> None:
    """`run/web.json`: listener name to [address, port], and the process id."""
    facts: dict[str, Any] = {
        name: list(bound[0].getsockname()[:2]) for name, bound in sockets if bound
    }
    facts["pid"] = {"web": os.getpid()}
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(facts) + "\n", encoding="utf-8")
    temporary.replace(path)

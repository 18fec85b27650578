"""Programs in C that make the bare system calls of what is measured, on a port of loopback."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench import generator

BEGUN_S = 0.5


@contextlib.contextmanager
def running(name: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The program of the source `name`.c, which gets its port as the first argument, and that
    port. It is ended if it has not ended itself."""
    program = generator.cache_directory() / name
    source = Path(__file__).with_name(f"{name}.c")
    subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-o", program, source], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(program), str(port), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            time.sleep(BEGUN_S)
            yield server, port
        finally:
            server.kill()

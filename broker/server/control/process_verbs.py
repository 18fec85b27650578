"""Verbs that show the broker's process, and that give its memory back."""

from __future__ import annotations

import asyncio
import gc
import os
import platform
import ssl
import sys
import threading
from pathlib import Path
from typing import Any

from broker.process.allocator import give_memory_back
from broker.schema.control_schema import (
    CertificatesShow,
    Memory,
    MemoryRelease,
    Process,
)
from broker.server.control.certificate_dates import described
from broker.server.control.requests import Request, bad_request, handles
from broker.server.pace import Pace
from broker.serving.certificates import CertificateError, offered
from broker.settings.config import settings
from broker.settings.sources import ENVIRONMENT_PREFIX, HIDDEN, Setting
from broker.stats.node import resident_memory


@handles("memory")
async def memory(request: Request[Memory]) -> Any:
    # The metrics ask other verbs for their figures, and either may be imported first.
    from broker.server.metrics.memory import memory_parts

    pace, parts = Pace(), dict[str, int]()
    for parts in memory_parts(request.broker):  # noqa: B007 - the last ones count
        await pace()
    total = request.broker.watch.reading.mem_used
    return {"total": total, "strategy": "rss", "parts": parts}


@handles("memory.release")
async def memory_release(request: Request[MemoryRelease]) -> Any:
    loop = asyncio.get_running_loop()
    before = resident_memory()
    # Short: what is many is frozen, and no walk looks at it (`broker.process.garbage`).
    garbage = gc.collect() if gc.isenabled() else 0
    await loop.run_in_executor(None, give_memory_back)
    return {"garbage": garbage, "before": before, "after": resident_memory()}


@handles("process")
async def process(request: Request[Process]) -> Any:
    broker = request.broker
    try:
        # Without a certificate: what listeners for TLS would offer.
        context = broker.certificates.context or offered(broker.config)
    except CertificateError as error:
        raise bad_request(str(error)) from None
    files = await asyncio.get_running_loop().run_in_executor(None, _of_files)
    return {
        "pid": os.getpid(),
        "python": platform.python_version(),
        "python_full": sys.version.replace("\n", " "),
        "openssl": ssl.OPENSSL_VERSION,
        "command_line": _command_line(),
        "environment": _environment(),
        **files,
        "tls": {
            "versions": [
                name
                for version, name in (
                    (ssl.TLSVersion.TLSv1_3, "tlsv1.3"),
                    (ssl.TLSVersion.TLSv1_2, "tlsv1.2"),
                )
                if context.minimum_version <= version
            ],
            "ciphers": [one["name"] for one in context.get_ciphers()],
        },
    }


@handles("certificates")
async def certificates(request: Request[CertificatesShow]) -> Any:
    loop, found = asyncio.get_running_loop(), []
    held = request.broker.certificates
    for file in (*held.files, *([held.authorities] if held.authorities else ())):
        rows = await loop.run_in_executor(None, described, file.content)
        found += [{"file": str(file.path), **row} for row in rows]
    return found


def _of_files() -> dict[str, Any]:
    """What the system says of the process."""
    return {"log": _log_location(), "threads": _threads()}


def _log_location() -> str:
    """Where standard error goes."""
    try:
        return str(Path("/proc/self/fd/2").readlink())
    except OSError:
        return ""


def _threads() -> list[dict[str, Any]]:
    """Each thread with its name and the CPU seconds it has used."""
    ticks = os.sysconf("SC_CLK_TCK")
    names = {one.native_id: one.name for one in threading.enumerate()}
    found = []
    for task in Path("/proc/self/task").iterdir():
        try:
            head, _, rest = (task / "stat").read_text().rpartition(")")
            fields = rest.split()
            user, system = int(fields[11]) / ticks, int(fields[12]) / ticks
        except OSError:
            continue  # it has ended
        name = names.get(int(task.name)) or head.partition("(")[2]
        found.append(
            {
                "id": int(task.name),
                "name": name,
                "state": fields[0],
                "user_s": user,
                "sys_s": system,
            }
        )
    return sorted(found, key=lambda one: one["id"])


def _command_line() -> list[str]:
    """The words of the command line, secrets hidden, also of `--name=value`."""
    items = {item.option: item for item in settings()}
    shown: list[str] = []
    waiting: Setting | None = None
    for word in sys.orig_argv:
        option, equals, value = word.partition("=")
        item = items.get(option)
        if waiting is not None:
            shown.append(waiting.shown_text(word))
            waiting = None
        elif item is not None and equals:
            shown.append(f"{option}={item.shown_text(value)}")
        else:
            shown.append(word)
            waiting = None if item is None or item.is_flag else item
    return shown


def _environment() -> dict[str, str]:
    """The variables that are settings; those of secrets say only that they are set."""
    known = {item.variable: item for item in settings()}
    return {
        name: known[name].shown_text(value) if name in known else HIDDEN
        for name, value in sorted(os.environ.items())
        if name.startswith(ENVIRONMENT_PREFIX)
    }

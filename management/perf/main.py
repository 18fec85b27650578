"""Reads the command line, runs the mode, prints what it measured."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import os
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from broker.client.errors import ClientError
from broker.client.uri import BadURI, Endpoint, parse
from broker.settings import config as settings
from management.perf import options as table
from management.perf.churn import Churn, Count
from management.perf.report import summary
from management.perf.throughput import Throughput
from management.starting import read_note

USAGE, UNAVAILABLE, WRONG = os.EX_USAGE, os.EX_UNAVAILABLE, os.EX_SOFTWARE


def main(argv: Sequence[str]) -> int:
    """Runs the command line that follows `perf`. Exit status: 0, 64 for a line that cannot be
    read, 69 where the broker cannot be reached or refuses, 70 if a count or body was wrong."""
    if not argv or argv[0] in ("--help", "-h", "help"):
        print(table.overview())
        return 0
    mode = argv[0]
    if mode not in table.MODES:
        print(
            f"Error: unknown mode '{mode[:50]}'; modes: {', '.join(table.MODES)}", file=sys.stderr
        )
        return USAGE
    if "--help" in argv or "-h" in argv:
        print(table.page(mode))
        return 0
    try:
        options = table.read(mode, argv[1:])
        endpoint = _endpoint(options.uri, mode)
    except (table.UsageError, BadURI, settings.ConfigError) as error:
        print(f"Error: {mode}: {error}", file=sys.stderr)
        return USAGE
    try:
        facts = asyncio.run(_run(mode, endpoint, options))
    except ClientError as error:
        print(f"Error: {error}", file=sys.stderr)
        return UNAVAILABLE
    return WRONG if facts.get("wrong_bodies") else 0


def _endpoint(uri: str | None, mode: str) -> Endpoint:
    """The broker that is named, or the one of this data directory. Raises BadURI or ConfigError."""
    if uri is not None:
        endpoint = parse(uri)
    else:
        config = settings.load([], os.environ)
        note = read_note(config.addresses_file) or read_note(config.run_dir / "broker.json")
        host, port = note.get("amqp", [config.bind[0], config.amqp_port])[:2]
        endpoint = Endpoint(
            host=host, port=port, user=config.default_user, password=config.default_password
        )
    return dataclasses.replace(endpoint, properties={"connection_name": f"perf {mode}"})


async def _run(mode: str, endpoint: Endpoint, options: Namespace) -> dict[str, Any]:
    run: Throughput | Churn | Count
    if mode in table.LOAD:
        run = Throughput(endpoint, options)
    elif mode in table.CHURN:
        run = Churn(mode, endpoint, options)
    else:
        run = Count(mode, endpoint, options)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, run.stop.set)
    gc.freeze()  # a walk over everything would show in the latencies
    lines = None
    if not options.quiet and not options.json:
        lines = asyncio.create_task(_lines(run))
    try:
        facts = await run.run()
    finally:
        if lines is not None:
            lines.cancel()
    print(summary(facts, options.json), flush=True)
    return facts


async def _lines(run: Any) -> None:
    """Prints a line a second."""
    before, at = run.progress(), time.monotonic()
    while True:
        await asyncio.sleep(1)
        now = time.monotonic()
        print(run.line(before, now - at), flush=True)
        before, at = run.progress(), now

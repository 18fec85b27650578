"""A stand-in for manage.py: the real supervisor over children that only pretend.

What a child does comes from LEVERET_TEST_FAKE, a JSON object: child to a list of words.
`silent`: never ready. `exit=N`: ends at once with status N. `deaf`: ignores SIGTERM.
`sync fails`: ends with 74 at SIGUSR1. `child`: starts a process of its own. `hangs`: gives one
sign of life in its first run, and no more. `late`: takes SIGHUP only after SIGUSR1.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from broker.process import lifetime, logs, pulse  # noqa: E402
from broker.settings import config as settings  # noqa: E402
from management import alive, starting, supervisor  # noqa: E402


def pretend(name: str, config: settings.Config) -> int:
    lifetime.watch(config.stop_timeout)
    words = json.loads(os.environ.get("LEVERET_TEST_FAKE", "{}")).get(name, [])

    def reloaded(*_: object) -> None:
        with (config.data_dir / "life").open("a") as life:
            life.write(f"{name} reloaded\n")

    for word in words:
        if word.startswith("exit="):
            return int(word[5:])
    stopped: list[int] = []
    if "deaf" in words:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
    if "sync fails" in words:
        signal.signal(signal.SIGUSR1, lambda *_: os._exit(74))
    if "late" in words:
        signal.signal(signal.SIGUSR1, lambda *_: signal.signal(signal.SIGHUP, reloaded))
    if "child" in words:
        process = subprocess.Popen(["sleep", "600"])
        (config.data_dir / "grandchild").write_text(str(process.pid))
    with (config.data_dir / "life").open("a") as life:
        life.write(f"{name} started {' '.join(sys.argv[2:])}\n")
    if "hangs" in words and not (config.data_dir / f"{name} hung").exists():
        (config.data_dir / f"{name} hung").touch()
        os.write(int(os.environ[pulse.VARIABLE]), b"\0")
    if "silent" not in words:
        note: dict[str, object] = {"pid": os.getpid()}
        note |= {
            "broker": {"amqp": ["127.0.0.1", 1], "first_user": "guest"},
            "web": {"http": ["127.0.0.1", 2]},
        }.get(name, {})
        temporary = config.run_dir / f"{name}.tmp"
        temporary.write_text(json.dumps(note))
        temporary.replace(config.run_dir / f"{name}.json")
    while not stopped:
        time.sleep(0.02)
    with (config.data_dir / "life").open("a") as life:
        life.write(f"{name} stopped\n")
    return 0


def main() -> int:
    name, argv = sys.argv[1], sys.argv[2:]
    config = settings.load(argv, os.environ)
    logs.configure(name, "info", "text")
    if name != "serve":
        status = pretend(name, config)
        lifetime.leave()
        return status
    try:
        starting.prepare(config)
    except starting.StartError as error:
        print(f"leveret serve: {error}", file=sys.stderr)
        return error.status
    if "hangs" in os.environ.get("LEVERET_TEST_FAKE", ""):
        alive.LOOK_S = 0.05
        config = dataclasses.replace(config, hang_timeout=0.15)
    command = [sys.executable, __file__]
    return supervisor.Supervisor(config, command, argv, time.monotonic()).run()


if __name__ == "__main__":
    sys.exit(main())

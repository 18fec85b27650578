"""An add-on goes by deleting its files and one line, and the rest goes on as it is built.

By default all add-ons go at once; `make add-ons` (`ADD_ONS=each`) takes away each alone.
The compiled modules of the rest are those of the checkout: none may have been built from what is
deleted (`tools/compiled.py` knows), so there is nothing to build again.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from management.broker_client import BrokerClient, BrokerError
from tests.amqp.raw import Client
from tests.appliance import ROOT, Appliance

Asked = tuple[str, dict[str, Any]]


class AddOn(NamedTuple):
    """`files` are patterns below `broker`, `register` the file where `line` names it. `asked` are
    methods with fields that ask for it, `code` what is answered once it is gone."""

    files: tuple[str, ...]
    register: str
    line: str
    asked: tuple[Asked, ...] = ()
    code: int = 406


def feature(name: str, *asked: Asked) -> AddOn:
    return AddOn((f"features/{name}",), "features/__init__.py", name, asked)


def exchange_type(module: str, type: str, *files: str) -> AddOn:
    asked = (exchange(type),)
    return AddOn((f"routing/{module}.py", *files), "routing/types.py", module, asked)


def exchange(type: str, **arguments: Any) -> Asked:
    named = {name.replace("_", "-"): value for name, value in arguments.items()}
    return "exchange.declare", {"exchange": "gone", "type": type, "arguments": named}


def queue(**arguments: Any) -> Asked:
    named = {name.replace("_", "-"): value for name, value in arguments.items()}
    return "queue.declare", {"queue": "gone", "durable": True, "arguments": named}


ADD_ONS = {
    "usage": feature("usage"),
    "delayed": feature(
        "delayed",
        exchange("x-delayed-message"),
        exchange("x-delayed-message", x_delayed_type="direct"),
        exchange("direct", x_delayed_type="direct"),
        exchange("direct", x_delayed_exchange=True),
    ),
    "dedup": feature(
        "dedup",
        queue(x_message_deduplication=True),
        queue(x_cache_size=10),
        queue(x_cache_ttl=1000),
        queue(x_deduplication_header="id"),
        exchange("direct", x_message_deduplication=True, x_cache_size=10),
    ),
    "transfer": feature("transfer"),
    "shovel": feature("shovel"),
    "federation": feature("federation", exchange("x-federation-upstream", x_max_hops=1)),
    "stream_index": feature(
        "stream_index", queue(x_queue_type="stream", x_stream_index="message_id")
    ),
    "tiers": feature("tiers"),
    "history": feature("history"),
    "consistent hash": exchange_type("consistent_hash", "x-consistent-hash", "routing/hashing.py"),
    "random": exchange_type("random", "x-random"),
    "stream": AddOn(
        ("queues/stream*", "store/stream*"),
        "queues/types.py",
        "stream",
        (queue(x_queue_type="stream"), queue(x_max_age="7D")),
    ),
    "direct reply": AddOn(
        ("wire/commands/direct_reply.py", "wire/reply_queue.*"),
        "wire/commands/added_queues.py",
        "direct_reply",
        (("basic.consume", {"queue": "amq.rabbitmq.reply-to", "no_ack": True}),),
        404,
    ),
}
# What a form offers is asked of the broker.
TYPES = {
    "delayed": "x-delayed-message",
    "consistent hash": "x-consistent-hash",
    "random": "x-random",
    "stream": "stream",
}
CORE = ("tests/amqp/test_publishing.py", "tests/amqp/test_consuming.py")
EACH = os.environ.get("ADD_ONS") == "each"


class BrokerElsewhere(Appliance):
    """A broker of a copy of the sources."""

    def __init__(self, root: Path, directory: Path) -> None:
        super().__init__("broker", directory)
        self.root = root

    def start(self, *, wait: bool = True) -> Appliance:
        self.log_start = 0
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "broker", *self.options()],
                cwd=self.root,
                env={**os.environ, "PYTHONPATH": str(self.root)},
                stdout=log,
                stderr=log,
            )
        self.wait_ready()
        return self


def copy_of_the_sources(root: Path) -> None:
    """What a broker runs from, with what is compiled, and what tells whether that fits."""
    for name in ("broker", "management", "tools"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("manage.py", "setup.py", "requirements-build.lock"):
        shutil.copy(ROOT / name, root)
    (root / "build").mkdir()
    shutil.copy(ROOT / "build" / "compiled.json", root / "build")


def take_away(root: Path, add_on: AddOn) -> list[str]:
    """Deletes its files and its name in its line. Returns the names of its modules."""
    broker = root / "broker"
    modules = set()
    for pattern in add_on.files:
        found = list(broker.glob(pattern))
        assert found, f"nothing is named {pattern}"
        for path in found:
            sources = [path] if path.is_file() else list(path.rglob("*.p*"))
            modules |= {_module(root, source) for source in sources}
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    register = broker / add_on.register
    text = register.read_text()
    entry = rf'(?:\n +)?"{add_on.line}",(?=[\n)])'
    assert len(re.findall(entry, text)) == 1, f"{add_on.register} has not one entry"
    register.write_text(re.sub(entry, "", text))
    return sorted(modules)


def _module(root: Path, source: Path) -> str:
    parts = source.relative_to(root).parent / source.name.split(".")[0]
    return ".".join(parts.parts).removesuffix(".__init__")


def check_that_nobody_names(root: Path, modules: list[str]) -> None:
    """No source that is left imports what is gone."""
    gone = re.compile(rf"\b(?:{'|'.join(map(re.escape, modules))})\b(?!\.p)")
    for path in (root / "broker").rglob("*.p*"):
        if path.suffix in (".py", ".pyx", ".pxd", ".pyi"):
            found = [line for line in path.read_text().splitlines() if gone.search(line)]
            assert not any("import" in line for line in found), f"{path}: {found}"


async def check_the_api(broker: Appliance, gone: list[str]) -> None:
    """What HTTP asks for answers 404, and rows say nothing of what is gone."""
    client = BrokerClient(broker.control_socket)
    try:
        place = {"vhost": "/", "name": "amq.direct"}
        row = await client.call("item", noun="exchanges", **place)
        if "delayed" in gone:
            assert "messages_delayed" not in row
            for verb, more in (
                ("exchange.delayed", {}),
                ("exchange.delayed.cancel", {"id": "1-1-1"}),
            ):
                with pytest.raises(BrokerError) as refused:
                    await client.call(verb, **place, **more)
                assert refused.value.status == 404
            policy = {"vhost": "/", "name": "p", "pattern": ".*"}
            with pytest.raises(BrokerError, match="does not carry it out"):
                await client.call("policy.put", **policy, definition={"delayed-message": True})
        if "dedup" in gone:
            assert "dedup_count" not in row
        types = await client.call("types")
        there = {*types["exchange"], *types["queue"]}
        for name, type in TYPES.items():
            assert (type in there) == (name not in gone)
    finally:
        await client.close()


@pytest.mark.parametrize("gone", [[name] for name in ADD_ONS] if EACH else [list(ADD_ONS)])
def test_it_runs_without_add_ons(tmp_path: Path, gone: list[str]) -> None:
    root = tmp_path / "sources"
    copy_of_the_sources(root)
    modules = [module for name in gone for module in take_away(root, ADD_ONS[name])]
    check_that_nobody_names(root, modules)
    built = subprocess.run([sys.executable, root / "tools" / "compiled.py"], capture_output=True)
    assert built.returncode == 0, built.stdout.decode()

    broker = BrokerElsewhere(root, tmp_path)
    broker.start()
    try:
        core = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *CORE],
            cwd=ROOT,
            env={**os.environ, "AMQP_TEST_ADDRESS": f"{broker.host}:{broker.amqp_port}"},
            capture_output=True,
        )
        assert core.returncode == 0, core.stdout.decode()[-5000:]
        for name in gone:
            for asked in ADD_ONS[name].asked:
                with Client.open((broker.host, broker.amqp_port)) as client:
                    client.send_method(1, asked[0], **asked[1])
                    assert client.expect("channel.close", 1).reply_code == ADD_ONS[name].code
        asyncio.run(check_the_api(broker, gone))
    finally:
        broker.signal(signal.SIGTERM)
        assert broker.wait() == 0, broker.log()
    assert (broker.data_dir / "usage").exists() == ("usage" not in gone)

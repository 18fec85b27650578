"""An exchange type that is no part of AMQP goes by deleting its file and its lines in
`broker/routing/types.py`."""

import re
import shutil
import signal
from pathlib import Path

import pytest

from broker.routing.types import TYPES
from tests.amqp.raw import Client
from tests.amqp.test_exchanges import Topology
from tests.appliance import ROOT
from tests.reports.test_removal import BrokerElsewhere

ADDED = {name: type_ for name, type_ in TYPES.items() if name.startswith("x-")}


@pytest.mark.parametrize("name", ADDED)
def test_it_runs_without_any_one_type(tmp_path: Path, name: str) -> None:
    root = tmp_path / "sources"
    for package in ("broker", "management"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, root / package, ignore=ignored)
    shutil.copy(ROOT / "manage.py", root)
    module = ADDED[name].__module__.rpartition(".")[2]
    (root / "broker" / "routing" / f"{module}.py").unlink()
    types = root / "broker" / "routing" / "types.py"
    line = rf"\n.*\b(?:routing\.{module} import|{ADDED[name].__name__}),?\b.*"
    types.write_text(re.sub(line, "", types.read_text()))

    broker = BrokerElsewhere(root, tmp_path)
    broker.start()
    try:
        with Client.open((broker.host, broker.amqp_port)) as client:
            for other in TYPES.keys() - {name, "x-delayed-message"}:
                topology = Topology(client, other)
                assert topology.reaches([topology.queue("1")], "1") == [1], other
            client.send_method(1, "exchange.declare", exchange="gone", type=name)
            client.expect_channel_close(1, 406, 40, 10, f"unknown exchange type '{name}'")
    finally:
        broker.signal(signal.SIGTERM)
        assert broker.wait() == 0, broker.log()

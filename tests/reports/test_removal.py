"""An add-on goes by deleting its folder and its line in `broker/features/__init__.py`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pika
import pytest

from tests.appliance import ROOT, Appliance

FEATURES = sorted(
    path.name
    for path in (ROOT / "broker" / "features").iterdir()
    if (path / "__init__.py").exists()
)


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


@pytest.mark.parametrize("feature", FEATURES)
def test_it_runs_without_any_one_feature(tmp_path: Path, feature: str) -> None:
    root = tmp_path / "sources"
    for name in ("broker", "management"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "manage.py", root)
    shutil.rmtree(root / "broker" / "features" / feature)
    register = root / "broker" / "features" / "__init__.py"
    line = f'    "{feature}",\n'
    assert register.read_text().count(line) == 1
    register.write_text(register.read_text().replace(line, ""))

    broker = BrokerElsewhere(root, tmp_path)
    broker.start()
    try:
        with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("orders", durable=True)
            channel.basic_publish("", "orders", b"4711", pika.BasicProperties(delivery_mode=2))
            assert channel.basic_get("orders", auto_ack=True)[2] == b"4711"
    finally:
        broker.signal(signal.SIGTERM)
        assert broker.wait() == 0, broker.log()
    assert not (broker.data_dir / "usage").exists() or feature != "usage"

"""`manage.py perf` against RabbitMQ."""

from __future__ import annotations

import json

import pytest

from management.perf import options as table
from management.perf.main import main
from tests.bench.rabbitmq import RabbitMQ

RUNS = (
    "throughput -C 500 -V -l",
    "throughput -C 500 -V -c 50 -a 10 -P 20 -p -x 2 -y 2",
    "throughput -C 300 -V -t 50 -T 10 -a 5",
    "throughput -C 100 -V -g -a 1",
    "throughput -C 20 -V -s 300000 -a 1",
    *(f"{mode} -C 10" for mode in table.CHURN),
    *(f"{mode} -n 10 -z 0.1" for mode in table.COUNT),
)


@pytest.mark.parametrize("words", RUNS)
def test_each_mode_runs(words: str, rabbitmq: RabbitMQ, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main([*words.split(), "--json", "--uri", f"amqp://127.0.0.1:{rabbitmq.port}"]) == 0
    facts = json.loads(capsys.readouterr().out)
    if words.startswith("throughput"):
        assert facts["published"] >= int(words.split()[2])
        assert (facts["consumed"], facts["wrong_bodies"]) == (facts["published"], 0)
    else:
        assert facts["rate"] > 0

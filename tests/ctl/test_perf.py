"""`manage.py perf` against Leveret: counts are right, and options do what they say."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from management.perf import options as table
from management.perf.main import main
from tests.appliance import ROOT, Appliance
from tests.control.test_real_broker import connect

Perf = Callable[..., dict[str, Any]]
URI = "amqp://guest:guest@{0.host}:{0.amqp_port}"


@pytest.fixture
def perf(shared_broker: Appliance, capsys: pytest.CaptureFixture[str]) -> Perf:
    """Runs a mode with these words; returns its summary."""

    def perf(*words: str) -> dict[str, Any]:
        capsys.readouterr()
        assert main([*words, "--json", "--uri", URI.format(shared_broker)]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    return perf


@pytest.mark.parametrize(
    "words",
    [
        "-C 3000",
        "-C 3000 -x 3 -y 2",
        "-C 3000 -c 100 -a 10 -P 50",
        "-C 300 -c 1 -a 1 -p",
        "-C 3000 -t 100 -a 10 -T 20",
        "-C 300 -s 0",
        "-C 300 -s 15",
        "-C 40 -s 300000 -a 1",
        "-C 300 -g -a 7",
        "-C 300 -g",
        "-C 3000 -e amq.direct -k perf-key",
        '-C 300 --queue-args \'{"x-queue-type": "stream"}\' -p -a 10 -P 50',
        "-C 3000 -x 2 -y 2 --queue-pattern perf-% --queues 2",
        '-C 300 --properties \'{"headers": {"n": 1}, "priority": 3}\'',
    ],
)
def test_what_is_published_is_consumed_whole(perf: Perf, words: str) -> None:
    arguments = shlex.split(words)
    count = int(arguments[1])
    if "stream" in words:
        arguments += ["--consumer-args", '{"x-stream-offset": "first"}']
    facts = perf("throughput", "--verify", "--latency", *arguments)
    assert facts["published"] >= count
    assert (facts["consumed"], facts["wrong_bodies"]) == (facts["published"], 0)
    assert facts["avg_pub_rate"] > 0 and facts["avg_consume_rate"] > 0
    if "-c" in arguments:
        assert (facts["confirmed"], facts["nacked"]) == (facts["published"], 0)
        assert facts["confirm_latency_us"]["p50"] > 0
    if "-g" not in arguments and "-s 0" not in words and "-s 15" not in words:
        latency = facts["latency_us"]
        assert 0 < latency["p50"] <= latency["p99"] <= latency["p99.9"] <= latency["max"]


def test_it_leaves_nothing_behind_unless_told(perf: Perf, shared_broker: Appliance) -> None:
    perf("throughput", "-C", "10", "-y", "0", "-u", "perf-kept", "--keep")
    perf("throughput", "-C", "10", "-y", "0", "-u", "perf-gone")
    connection = connect(shared_broker)
    channel = connection.channel()
    kept = channel.queue_delete("perf-kept")
    assert kept.method.NAME == "Queue.DeleteOk"
    for name in ("perf-gone", "perf-test"):
        with pytest.raises(Exception, match="404"):
            connection.channel().queue_declare(name, passive=True)
    connection.close()


def test_it_counts_what_comes_back_and_what_is_refused(perf: Perf) -> None:
    nowhere = ("-C", "50", "-y", "0", "--mandatory", "-c", "10")
    facts = perf("throughput", *nowhere, "-k", "perf-no-such-queue")
    assert (facts["returned"], facts["confirmed"]) == (facts["published"], 50)
    full = '{"x-max-length": 1, "x-overflow": "reject-publish"}'
    facts = perf("throughput", "-C", "50", "-y", "0", "-c", "1", "--queue-args", full)
    assert (facts["confirmed"], facts["nacked"]) == (1, 49)


def test_it_keeps_to_rates_and_times(perf: Perf) -> None:
    facts = perf("throughput", "-r", "500", "-z", "1")
    assert facts["published"] <= 500 * facts["elapsed_seconds"] + 1
    facts = perf("throughput", "-r", "600", "-R", "300", "-z", "1")
    # One read's worth may come ahead of the rate.
    assert facts["consumed"] <= 300 * facts["elapsed_seconds"] + 60
    facts = perf("throughput", "-D", "100")
    assert facts["consumed"] >= 100


@pytest.mark.parametrize("mode", table.CHURN)
def test_it_churns(perf: Perf, mode: str, shared_broker: Appliance) -> None:
    facts = perf(mode, "-C", "20", "-x", "2")
    assert (facts["mode"], facts["operations"] >= 20) == (mode, True)
    assert facts["rate"] > 0
    assert facts["latency_us"]["p50"] <= facts["latency_us"]["max"]


@pytest.mark.parametrize("mode", table.COUNT)
def test_it_makes_as_many_as_asked(perf: Perf, mode: str) -> None:
    assert perf(mode, "-n", "30", "-z", "0.1")["count"] == 30


def test_it_says_what_is_wrong_and_ends_with_its_status(
    capsys: pytest.CaptureFixture[str], shared_broker: Appliance
) -> None:
    uri = ("--uri", URI.format(shared_broker))
    for words, status, text in (
        (("nonsense",), 64, "unknown mode 'nonsense'"),
        (("throughput", "-s", "-1"), 64, "-s"),
        (("throughput", "--frobnicate"), 64, "--frobnicate"),
        (("throughput", "-c", "1", "-t", "1"), 64, "not both"),
        (("throughput", "-x", "0", "-y", "0"), 64, "neither"),
        (("throughput", "-T", "1"), 64, "need acks"),
        (("throughput", "--queue-args", "{"), 64, "not a JSON object"),
        (("throughput", "--queue-pattern", "q"), 64, "%"),
        (("queue-churn", "-s", "5"), 64, "-s"),
        (("throughput", "--uri", "amqp://u:secret@h?x=1"), 64, "'x' is unknown"),
        (("throughput", "--uri", "amqp://127.0.0.1:1"), 69, "amqp://127.0.0.1:1"),
        (("throughput", *uri, "-e", "no such exchange", "-C", "1"), 69, "404"),
        (("throughput", *uri, "--queue-args", '{"x-expires": -1}'), 69, "406"),
        (("queue-churn", "--uri", f"{uri[1]}/nowhere"), 69, "530"),
    ):
        capsys.readouterr()
        assert main(words) == status, words
        captured = capsys.readouterr()
        assert text in captured.err, words
        assert "secret" not in captured.err
        assert captured.out == ""


def test_it_explains_each_mode(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    everything = capsys.readouterr().out
    for mode, (text, example) in table.MODES.items():
        assert text in everything
        assert main([mode, "--help"]) == 0
        page = capsys.readouterr().out
        assert all(one.spelled in page for one in table.OPTIONS if mode in one.modes)
        words = shlex.split(example)
        assert words[0] == mode
        table.read(mode, words[1:])


def test_ctrl_c_ends_a_run_with_its_summary(shared_broker: Appliance) -> None:
    process = subprocess.Popen(
        [sys.executable, "manage.py", "perf", "throughput", "-r", "1000"],
        cwd=ROOT,
        env={"LEVERET_DATA_DIR": str(shared_broker.data_dir), "LEVERET_CONFIG": "", "PATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("Publish rate: ")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    assert "Summary:" in out

"""The long history of a real broker that is killed: at most the step at hand is lost, and nothing
is damaged. Its minutes are seconds here.

`LEVERET_TEST_KILLS=50` kills it more often.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.stats.history import COLUMNS, NODE_KEY
from broker.stats.history_file import Frame, decode
from tests.amqp.raw import Client
from tests.appliance import ROOT, Appliance

KILLS = int(os.environ.get("LEVERET_TEST_KILLS", "2"))
STEPS = Path(__file__).parent / "short_steps"
PUBLISH = COLUMNS["node"][0].index("publish")


@pytest.fixture
def fast(tmp_path: Path) -> Iterator[Appliance]:
    appliance = Appliance("broker", tmp_path)
    appliance.environment["PYTHONPATH"] = f"{STEPS}:{ROOT}"
    yield appliance.start()
    appliance.close()


def minutes(broker: Appliance) -> tuple[list[Frame], int]:
    """The frames of the finest step that are on disk, and how many octets behind them are none."""
    found: list[Frame] = []
    torn = 0
    for path in sorted((broker.data_dir / "history").glob("minute-*.hist")):
        data = path.read_bytes()
        _, frames, whole = decode(data)
        found += frames
        torn += len(data) - whole[0]
    return found, torn


def published(frames: list[Frame]) -> int:
    records = (frame.sections["node"].of(NODE_KEY) for frame in frames)
    return sum(round(record[PUBLISH]) for record in records if record is not None)


def publish(broker: Appliance, count: int) -> None:
    with Client.open((broker.host, broker.amqp_port)) as client:
        client.call(1, "confirm.select")
        for _ in range(count):
            client.publish(1, "amq.direct", "nowhere", b"x")
        while client.expect("basic.ack", 1).delivery_tag < count:
            pass
        client.close()


def wait_for(broker: Appliance, count: int) -> list[Frame]:
    """The frames, as soon as that many messages are in them."""
    until = time.monotonic() + 60
    while published(frames := minutes(broker)[0]) < count:
        assert time.monotonic() < until, f"{published(frames)} of {count} are in the history"
        time.sleep(0.02)
    return frames


def test_a_kill_costs_at_most_the_step_at_hand(fast: Appliance) -> None:
    chance = random.Random(5)
    told = 0
    for _ in range(KILLS):
        publish(fast, 100)
        told += 100
        before = wait_for(fast, told)
        assert published(before) == told
        publish(fast, 50)
        time.sleep(chance.random() * 1.1)  # at any place of a step, and of writing it
        fast.kill()
        lying, _ = minutes(fast)
        fast.start()
        after, torn = minutes(fast)
        assert torn == 0
        assert after[: len(lying)] == lying
        assert lying[: len(before)] == before
        assert 0 <= published(lying) - told <= 50
        told = published(lying)
        ends = [frame.at for frame in after]
        assert ends == sorted(set(ends))
    log = fast.log()
    assert "error" not in log.lower()
    assert "is removed" not in log
    assert "Traceback" not in log

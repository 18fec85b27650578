"""A load that stays the same, and whether what is shown of it is true.

`python -m tests.web.constant_load URL QUEUES RATE FILE` publishes and consumes until it is ended:
every fourth message goes to the queue `steady`, the others to `rate-00000` and so on in turn. It
notes in FILE what it did; `Truth` reads that, so that a pause of the machine counts as what it was.
"""

from __future__ import annotations

import bisect
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pika

STEADY = "steady"
STEADY_EVERY = 4
TICK_S = 0.02
TOLERANCE = 0.05
LATE_S = 2.5
"""A figure on a page is of the last sample, which is a second old at most, and on its way."""

WINDOWS_S = (5.0, 6.0)
"""Over which rates are taken: from the first row within five seconds to the newest."""

COUNTED = ("publish", "deliver_get", "ack")
PUBLISHED, CONSUMED = 0, 1
"""Places of the noted counts."""

# Every 250 ms, what a page says of rates: tiles, head, legends, the newest row of a chart's table.
# With `asTable`, charts are shown as tables.
READ = """(asTable) => {
  const rates = /^message_stats\\.(publish|deliver_get|ack)_details\\.rate$/;
  const legend = { publish: "publish", deliver: "deliver_get", ack: "ack" };
  if (asTable) document.querySelector("#chart-rates [data-table-toggle]").click();
  window.readings = [];
  setInterval(() => {
    const at = Date.now() / 1000;
    const say = (where, name, text) => window.readings.push([at, where, name, text]);
    for (const element of document.querySelectorAll("[data-live]")) {
      const found = rates.exec(element.dataset.live);
      if (!found) continue;
      // The head of a table's column says what the cells below it show.
      const table = element.tagName === "TH" && element.closest("table");
      const rows = table ? [...table.tBodies[0].rows] : [];
      const shown = table ? rows.map((row) => row.cells[element.cellIndex]) : [element];
      for (const one of shown) say("value", found[1], one.textContent);
    }
    for (const element of document.querySelectorAll("[data-head]")) {
      say("head", element.dataset.head, element.textContent);
    }
    for (const key of document.querySelectorAll("#chart-rates .chart-key")) {
      const name = legend[key.textContent.split(" ")[0]];
      if (name) say("legend", name, key.querySelector("b").textContent);
    }
    const rows = document.querySelectorAll("#chart-rates .chart-table tr");
    const names = [...(rows[0]?.cells ?? [])].map((cell) => legend[cell.textContent]);
    names.forEach((name, i) => { if (name) say("chart", name, rows[1].cells[i].textContent); });
  }, 250);
}"""


class Reading(NamedTuple):
    """What was shown at a time (seconds since 1970) and where; `share` of the load it is about."""

    at: float
    where: str
    name: str
    value: float
    share: float


class Truth:
    """What the load did, from its notes: seconds since 1970, published, consumed."""

    def __init__(self, notes: Path) -> None:
        lines = [json.loads(line) for line in notes.read_text().splitlines() if line.endswith("]")]
        self._times = [line[0] for line in lines]
        self._counts = [line[1:] for line in lines]

    def rates(self, name: str, at: float) -> tuple[float, float]:
        """The least and the largest rate that was true in the windows which end shortly before.

        What the broker has counted lies between what was published and what was consumed by then;
        at a constant load the two are close together, while the machine pauses they are not.
        """
        upper, lower = (CONSUMED, CONSUMED) if name == "ack" else (PUBLISHED, CONSUMED)
        found = []
        for window in WINDOWS_S:
            for late in range(11):
                end = at - late * LATE_S / 10
                begin = end - window
                found += [
                    (self._count(lower, end) - self._count(upper, begin)) / window,
                    (self._count(upper, end) - self._count(lower, begin)) / window,
                ]
        return min(found), max(found)

    def is_off(self, reading: Reading) -> bool:
        """Whether a reading is more than 5 % beside all that was true shortly before it."""
        least, largest = self.rates(reading.name, reading.at)
        least, largest = least * reading.share, largest * reading.share
        return not least * (1 - TOLERANCE) <= reading.value <= largest * (1 + TOLERANCE)

    def error(self, reading: Reading) -> float:
        """How far a reading is beside what was true, as a share of it."""
        least, largest = (rate * reading.share for rate in self.rates(reading.name, reading.at))
        return max(0.0, least - reading.value, reading.value - largest) / max(largest, 1e-9)

    def _count(self, which: int, at: float) -> float:
        place = max(0, bisect.bisect_right(self._times, at) - 1)
        return float(self._counts[place][which])


def number(text: str) -> float:
    """`12.4 k` as it was before it was written; an unknown one is no number."""
    figure, _, unit = text.replace(",", "").strip().partition(" ")
    return float(figure) * {"": 1, "k": 1e3, "M": 1e6}[unit] if figure != "–" else float("nan")


def shown(page: Any, title: str, share: float) -> list[Reading]:
    """What a page has shown since `READ` ran on it. The head is always about all of the load."""
    return [
        Reading(at, f"{title} {where}", name, number(text), 1.0 if where == "head" else share)
        for at, where, name, text in page.evaluate("() => window.readings.splice(0)")
    ]


def answered(api: Any) -> Iterator[Reading]:
    """What the HTTP API says of the load. `api`: an `httpx.Client` that is signed in."""
    share = 1 / STEADY_EVERY
    wholes = {
        "/api/overview": 1.0,
        "/api/vhosts/%2F": 1.0,
        f"/api/queues/%2F/{STEADY}": share,
    }
    for where, part in wholes.items():
        stats = api.get(where).json()["message_stats"]
        for name in COUNTED:
            yield Reading(time.time(), where, name, stats[f"{name}_details"]["rate"], part)
    for where, names in (
        ("/api/queues?columns=message_stats", COUNTED),
        ("/api/channels?columns=message_stats", COUNTED),
    ):
        rows = [row.get("message_stats") or {} for row in api.get(where).json()]
        for name in names:
            total = sum((row.get(f"{name}_details") or {"rate": 0.0})["rate"] for row in rows)
            yield Reading(time.time(), f"sum of {where}", name, total, 1.0)


@contextmanager
def constant_load(url: str, queues: int, rate: int, notes: Path) -> Iterator[None]:
    """The load, from when it runs until the end of the block; the queues are declared already."""
    command = [sys.executable, "-m", "tests.web.constant_load", url, str(queues), str(rate)]
    with subprocess.Popen([*command, str(notes)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "running\n", "the load did not start"
            yield
        finally:
            process.terminate()


def names(queues: int) -> list[str]:
    """The queues of a load."""
    return [STEADY, *(f"rate-{place:05}" for place in range(queues - 1))]


class Consuming(threading.Thread):
    """Takes and acknowledges everything; `count` is how much so far."""

    def __init__(self, url: str, queues: int) -> None:
        super().__init__(daemon=True)
        self.count = 0
        self.ready = threading.Event()
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self._channel = self._connection.channel()
        self._names = names(queues)

    def run(self) -> None:
        for name in self._names:
            self._channel.basic_consume(name, self._take)
        self.ready.set()
        self._channel.start_consuming()

    def _take(self, channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
        channel.basic_ack(method.delivery_tag)
        self.count += 1


def main(url: str, queues: int, rate: int, notes: Path) -> None:
    consuming = Consuming(url, queues)
    consuming.start()
    consuming.ready.wait()
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    # In no order: a list that is read in slices would else run with the load or against it.
    others = names(queues)[1:]
    random.Random(7).shuffle(others)
    published = 0
    began = time.monotonic()
    with notes.open("w") as file:
        print("running", flush=True)
        while True:
            due = int((time.monotonic() - began) * rate)
            while published < due:
                other = others[published % len(others)]
                key = other if published % STEADY_EVERY else STEADY
                channel.basic_publish("", key, b"x" * 32)
                published += 1
            file.write(json.dumps([time.time(), published, consuming.count]) + "\n")
            file.flush()
            connection.process_data_events(TICK_S)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))

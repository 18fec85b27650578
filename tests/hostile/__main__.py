"""`python -m tests.hostile`: what one user does to others, in full size.

Each row is something that one user makes much of: objects up to their limit and one more, bombs in
definitions, a flood of reports. Meanwhile a probe publishes and gets; before it, the same while a
process burns a processor. A row says what was refused and with which words, the probe's p50 and p99
of both, the longest part of a turn of the broker by its own CPU time, and its memory before, at the
most and after. Status 1 if something was not refused, was refused without a reason, or a probe's
p99 is more than three times that of the control run (5 ms at least).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from broker.config import Config
from tests.amqp import raw
from tests.appliance import Appliance
from tests.hostile.figures import resident_bytes
from tests.turns import TurnMeter

BURN = "import time\nend = time.monotonic() + %f\nwhile time.monotonic() < end: pass"
CONTROL_S = 4.0
RATIO = 3.0
FLOOR_S = 0.005
LIMITS = ("queues_max", "bindings_max", "consumers_per_connection_max", "policies_max")


class Probe(threading.Thread):
    """Publishes a message and gets it, again and again; its waits in seconds."""

    def __init__(self, appliance: Appliance) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()
        self.waits: list[float] = []
        self.peak = 0
        self.appliance = appliance

    def run(self) -> None:
        address = (self.appliance.host, self.appliance.amqp_port)
        pid = self.appliance.pids["broker"]
        with raw.Client.open(address, timeout=120) as client:
            queue = client.call(1, "queue.declare", exclusive=True).queue
            while not self.over.is_set():
                begun = time.monotonic()
                client.publish(1, "", queue, b"probe")
                assert client.get(1, queue, no_ack=True) is not None
                self.waits.append(time.monotonic() - begun)
                if len(self.waits) % 20 == 0:
                    self.peak = max(self.peak, resident_bytes(pid))
                time.sleep(0.01)

    def end(self) -> tuple[float, float]:
        """p50 and p99."""
        self.over.set()
        self.join(120)
        waits = sorted(self.waits) or [0.0]
        return waits[len(waits) // 2], waits[len(waits) * 99 // 100]


def opened(appliance: Appliance) -> raw.Client:
    return raw.Client.open((appliance.host, appliance.amqp_port), timeout=300)


def _until_closed(client: raw.Client, pieces: list[bytes], last: str) -> str:
    """Sends everything, and reads to the answer of `last` or a close; that one's text."""
    sending = threading.Thread(target=_send_all, args=(client, pieces), daemon=True)
    sending.start()
    while True:
        method = client.read_method()
        if method.name in ("channel.close", "connection.close"):
            return f"{method.reply_code} {method.reply_text}"
        if method.name == last:
            return "nothing was refused"


def _send_all(client: raw.Client, pieces: list[bytes]) -> None:
    try:
        for piece in pieces:
            client.send(piece)
    except OSError:
        pass  # it was cut off, and told why


def bindings(appliance: Appliance, limits: dict[str, int]) -> str:
    client = opened(appliance)
    client.call(1, "queue.declare", queue="b", exclusive=True)
    bind = [
        b"".join(
            raw.method(
                1, "queue.bind", queue="b", exchange="amq.topic", routing_key=f"k.{n}", nowait=True
            )
            for n in range(begin, begin + 1000)
        )
        for begin in range(0, limits["bindings_max"] + 1000, 1000)
    ]
    text = _until_closed(client, [*bind, raw.method(1, "basic.qos")], "basic.qos-ok")
    client.socket.close()
    return text


def queues(appliance: Appliance, limits: dict[str, int]) -> str:
    client = opened(appliance)
    declare = [
        b"".join(
            raw.method(1, "queue.declare", queue=f"q.{n}", exclusive=True, nowait=True)
            for n in range(begin, begin + 1000)
        )
        for begin in range(0, limits["queues_max"] + 1000, 1000)
    ]
    text = _until_closed(client, [*declare, raw.method(1, "basic.qos")], "basic.qos-ok")
    client.socket.close()
    return text


def consumers(appliance: Appliance, limits: dict[str, int]) -> str:
    client = opened(appliance)
    client.call(1, "queue.declare", queue="c", exclusive=True)
    most = limits["consumers_per_connection_max"]
    pieces = [raw.method(channel, "channel.open") for channel in range(2, most // 5000 + 3)]
    pieces += [
        raw.method(1 + n // 5000, "basic.consume", queue="c", consumer_tag=f"{n}", nowait=True)
        for n in range(most + 1)
    ]
    text = _until_closed(client, [*pieces, raw.method(1, "basic.qos")], "basic.qos-ok")
    client.socket.close()
    return text


def channels(appliance: Appliance, _limits: dict[str, int]) -> str:
    clients = [opened(appliance) for _ in range(10)]
    texts = set()
    for client in clients:
        pieces = [raw.method(channel, "channel.open") for channel in range(2, 2100)]
        texts.add(_until_closed(client, pieces, "none"))
    for client in clients:
        client.socket.close()
    return "; ".join(sorted(texts))


def _imported(appliance: Appliance, text: bytes) -> str:
    with httpx.Client(base_url=appliance.http_url, auth=("guest", "guest"), timeout=300) as client:
        answer = client.post("/api/definitions", content=text)
    if answer.status_code in (200, 201, 204):
        return "nothing was refused"
    return f"{answer.status_code} {answer.json().get('reason', answer.text)}"[:200]


def _bomb(**sections: object) -> Callable[[Appliance, dict[str, int]], str]:
    text = json.dumps(sections).encode()
    return lambda appliance, _limits: _imported(appliance, text)


def _text(text: bytes) -> Callable[[Appliance, dict[str, int]], str]:
    return lambda appliance, _limits: _imported(appliance, text)


def policies(appliance: Appliance, limits: dict[str, int]) -> str:
    rows = [
        {"vhost": "/", "name": f"p{n}", "pattern": "^p", "definition": {"max-length": 1}}
        for n in range(max(100_000, limits["policies_max"] + 1))
    ]
    return _imported(appliance, json.dumps({"policies": rows}).encode())


def report_flood(appliance: Appliance, _limits: dict[str, int]) -> str:
    """A thousand requests to compute a report: one computes, the others are told of it."""
    with httpx.Client(base_url=appliance.http_url, auth=("guest", "guest"), timeout=300) as client:
        answers = [client.post("/api/reports/queue-usage/run") for _ in range(1000)]
    runs = {answer.text for answer in answers if answer.status_code == 202}
    statuses = sorted({answer.status_code for answer in answers})
    assert len(runs) < 20, f"{len(runs)} runs were begun"
    return f"{statuses}: {len(runs)} runs for 1,000 requests"


DEEP = b'{"queues": [' + b'{"a":' * 200_000 + b"1" + b"}" * 200_000 + b"]}"
HUGE = b'{"queues": [{"name": "n", "vhost": "/", "arguments": {"x-max-length": 1' + b"0" * 100_000
WIDE = b'{"queues": [{"name": "w", "vhost": "/", "arguments": {%s}}]}' % b",".join(
    b'"k%d": %d' % (n, n) for n in range(1_000_000)
)
ROWS: dict[str, Callable[[Appliance, dict[str, int]], str]] = {
    "bindings": bindings,
    "queues": queues,
    "consumers": consumers,
    "channels": channels,
    "policies": policies,
    "deep": _text(DEEP),
    "wide": _text(WIDE),
    "numbers": _text(HUGE + b"}}]}"),
    "names": _bomb(queues=[{"name": "n" * 1_000_000, "vhost": "/", "durable": True}]),
    "twice": _text(b'{"queues": [], ' + b'"x": [1], ' * 100_000 + b'"queues": []}'),
    "reports": report_flood,
}


def limits_of(share: float) -> dict[str, int]:
    """The limits at their defaults, or a share of them."""
    return {name: max(20, int(getattr(Config(), name) * share)) for name in LIMITS}


def row(name: str, appliance: Appliance, meter: TurnMeter, limits: dict[str, int]) -> list[str]:
    """Carries a row out and prints it; what was wrong."""
    pid = appliance.pids["broker"]
    burning = subprocess.Popen([sys.executable, "-c", BURN % CONTROL_S])
    probe = Probe(appliance)
    probe.start()
    burning.wait()
    control = probe.end()
    before = resident_bytes(pid)
    meter.forget()
    probe = Probe(appliance)
    probe.start()
    begun = time.monotonic()
    text = ROWS[name](appliance, limits)
    seconds = time.monotonic() - begun
    time.sleep(1)
    p50, p99 = probe.end()
    turns = meter.of("broker")
    memory = " ".join(
        f"{size / 2**20:.0f}" for size in (before, max(probe.peak, before), resident_bytes(pid))
    )
    print(
        f"{name:10} {seconds:6.1f} s  probe {1000 * p50:.1f}/{1000 * p99:.1f} ms, control "
        f"{1000 * control[0]:.1f}/{1000 * control[1]:.1f} ms, longest callback "
        f"{turns.longest_callback:.1f} ms, turn {turns.longest:.1f} ms, MiB {memory}\n"
        f"{'':10} {text}",
        flush=True,
    )
    wrong = []
    if text == "nothing was refused":
        wrong.append(f"{name}: nothing was refused")
    if p99 > RATIO * max(control[1], FLOOR_S):
        wrong.append(f"{name}: the probe's p99 is {p99 / control[1]:.1f} times the control's")
    if turns.longest_callback > 10:
        wrong.append(f"{name}: {'; '.join(meter.slow_callbacks('broker')[:2])}")
    return wrong


def main() -> int:
    """Exit status 1 if a row was not as it should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--only", action="append", choices=ROWS, help="these rows; all if none")
    parser.add_argument("--share", type=float, default=1.0, help="of the limits' defaults (1.0)")
    options = parser.parse_args()
    limits = limits_of(options.share)
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="leveret-hostile-") as directory:
        appliance = Appliance("serve", Path(directory), log_level="error", **limits)
        meter = TurnMeter(appliance)
        appliance.start()
        try:
            httpx.get(f"{appliance.http_url}/api/overview", auth=("guest", "guest"), timeout=60)
            for name in options.only or ROWS:
                wrong += row(name, appliance, meter, limits)
        finally:
            appliance.kill()
    print("\n".join(wrong) or "all were refused, and the probe went on")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

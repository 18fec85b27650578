"""`python -m tests.hostile`: every attack, in full size, beside two probes and a control run.

For each attack a row: the p50 and p99 of a probe over AMQP and of one over HTTP while it lasts; the
same in a control run of the same length, CPU and bytes sent (`measuring.py`); the ratio of the two
p99; the longest turn of the loops of the broker and of the web process, by their own CPU clock;
memory of both before, at the most and after. Status 1 if an attack was let through, a ratio is
above 3 or a turn longer than 10 ms in each of three tries, or memory grew by more than the limits
allow.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import httpx

from broker.settings.config import Config
from tests.api.test_sessions import sign_in, token_for
from tests.appliance import ROOT, Appliance
from tests.hostile.attacks.attacker import MALLORY, PROXY, Attacker
from tests.hostile.attacks.findings import prepare
from tests.hostile.attacks.table import ATTACKS, BY_NAME, Attack
from tests.hostile.measuring import PROBE, Measure, Row
from tests.hostile.sockets import TEXT, frame, opened
from tests.listeners.certificates import Authority
from tests.turns import TurnMeter

RATIO_MAX = 3.0
TURN_MAX_MS = 10.0
TRIES = 3
"""Times that a row is measured whose waits or turns go against the rule; each is printed, and one
within the rule is enough. What takes long by our code does so each time; what others do to the
machine, whose interrupts and whose hypervisor are in the processor time of each thread, does not.
"""
SHARED = ("queues_max", "exchanges_max", "bindings_max", "policies_max",
          "consumers_per_connection_max", "consumers_per_channel_max",
          "consumers_per_queue_max")  # fmt: skip
HEAD = (
    "of", "attack", "s", "AMQP p50/p99", "control", "ratio", "HTTP p50/p99", "control", "ratio",
    "turn broker, web", "broker MiB", "web MiB", "it came to",
)  # fmt: skip


def settings(directory: Path, share: float) -> dict[str, object]:
    """TLS on all ports, a trusted proxy, and the limits at a share of their defaults."""
    authority = Authority(directory / "authority")
    authority.issue("server", san="DNS:localhost,IP:127.0.0.1")
    default = Config()
    limits = {name: max(20, int(getattr(default, name) * share)) for name in SHARED}
    return {
        "tls_cert_file": authority.directory / "server.pem",
        "tls_ca_file": authority.file,
        "tls_verify": "optional",
        "amqps_port": 0,
        "https_port": 0,
        "wss_port": -1,
        "proxy_protocol_sources": f"{PROXY}/32",
        "trusted_proxies": f"{PROXY}/32",
        "log_level": "warning",
        **(limits if share < 1 else {}),
    }


def users(appliance: Appliance) -> None:
    """The attacker's and the probes' users."""
    rights = dict.fromkeys(("configure", "write", "read"), ".*")
    with httpx.Client(base_url=appliance.http_url, auth=("guest", "guest"), timeout=60) as guest:
        for name, tags in ((MALLORY, "management"), (PROBE, "monitoring")):
            body = {"password": name, "tags": tags}
            guest.put(f"/api/users/{name}", json=body).raise_for_status()
        guest.put(f"/api/permissions/%2F/{PROBE}", json=rights).raise_for_status()
        prepare(guest)


def warm(appliance: Appliance) -> None:
    """Asks for each kind of thing once: templates are compiled and modules loaded with the first
    request, which is no attack's doing."""
    pages = "/ /problems /queues /exchanges /connections /channels /consumers /policies /users"
    pages += " /definitions /vhosts /node /log /reports /reports/traffic /console /palette"
    with httpx.Client(base_url=appliance.http_url, timeout=60) as client:
        assert sign_in(client, PROBE, PROBE).status_code == 302
        for page in pages.split():
            client.get(page)
        token = token_for(client)
        client.post("/console/ticket", headers={"X-CSRFToken": token})
        cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
        sock, _ = opened(appliance, "http", "/live/", Cookie=cookie)
        sock.sendall(frame(TEXT, b'{"type": "subscribe", "id": 1, "topic": "overview"}'))
        sock.recv(1 << 16)
        sock.close()
        sock, _ = opened(appliance, "http")
        sock.close()
    with httpx.Client(base_url=appliance.http_url, auth=("guest", "guest"), timeout=60) as guest:
        guest.get("/api/queues", params={"page": 1, "name": "^a", "use_regex": "true"})
        guest.post("/api/definitions", content=b"{}").raise_for_status()
        guest.get("/api/definitions").raise_for_status()
        for name in ("queue-usage", "traffic"):
            guest.get(f"/api/reports/{name}")
            guest.post(f"/api/reports/{name}/run?from=wrong")
        guest.get("/api/whoami", auth=("guest", "wrong"))


def cells(attack: Attack, row: Row) -> Iterable[str]:
    """As in `HEAD`."""
    amqp, web = row.ratios()
    turns = row.turns
    yield from (attack.of, attack.name, f"{row.cost.seconds:.0f}")
    yield from (str(row.amqp), str(row.amqp_control), f"{amqp:.1f}")
    yield from (str(row.web), str(row.web_control), f"{web:.1f}")
    yield f"{turns['broker']:.1f}, {turns['web']:.1f}"
    for process in ("broker", "web"):
        yield "/".join(f"{size:.0f}" for size in row.memory[process])
    yield row.text.replace("|", "/").replace("\n", " ")[:300]


def wrong_in(attack: Attack, row: Row) -> list[str]:
    """What goes against the rule whenever it happens."""
    wrong = [row.text] if row.text.startswith("WRONG") else []
    for process, most in (("broker", attack.broker), ("web", attack.web)):
        before, peak, _after = row.memory[process]
        if peak - before > most:
            wrong.append(f"the {process} grew by {peak - before:.0f} MiB, {most} are allowed")
    return [f"{attack.name}: {each}" for each in wrong]


def slow_in(attack: Attack, row: Row) -> list[str]:
    """What goes against the rule if it happens each time, and the longest turns."""
    slow = []
    for probe, ratio in zip(("AMQP", "HTTP"), row.ratios(), strict=True):
        if ratio > RATIO_MAX:
            slow.append(f"the p99 over {probe} is {ratio:.1f} times the control's")
    for process, turn in row.turns.items():
        if turn > TURN_MAX_MS:
            slow.append(f"a turn of the {process} took {turn:.1f} ms")
    told = [f"    {line}" for line in row.slow[-5:]] if slow else []
    return [*(f"{attack.name}: {each}" for each in slow), *told]


def carry_out(attack: Attack, measure: Measure, attacker: Attacker) -> list[str]:
    """Prints a row for each try; what was wrong."""
    slow: list[str] = []
    for _ in range(TRIES):
        try:
            row = measure.row(attack.name, partial(attack.carry_out, attacker))
        except (AssertionError, OSError) as error:
            return [f"{attack.name}: not measured: {error}"]
        print(f"| {' | '.join(cells(attack, row))} |", flush=True)
        if wrong := wrong_in(attack, row):
            return wrong
        found = slow_in(attack, row)
        if not found:
            return []
        slow += found
    return slow


def run(attacks: list[Attack], share: float, seconds: float) -> list[str]:
    """Prints a row each; what was wrong."""
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="leveret-hostile-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        appliance = Appliance("serve", directory, **settings(directory, share))
        meter = TurnMeter(appliance)
        appliance.start()
        try:
            users(appliance)
            warm(appliance)
            measure = Measure(appliance, meter)
            print(f"| {' | '.join(HEAD)} |\n|{' --- |' * len(HEAD)}", flush=True)
            for attack in attacks:
                wrong += carry_out(attack, measure, Attacker(appliance, share, seconds))
        finally:
            if appliance.process is not None:
                appliance.kill()
    return wrong


def main() -> int:
    """Exit status 1 if a row goes against the rule."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--only", action="append", choices=BY_NAME, help="these; all if none")
    parser.add_argument("--share", type=float, default=1.0, help="of the full size (1.0)")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a flood (5)")
    options = parser.parse_args()
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, commit {commit}, share {options.share}\n")
    attacks = [BY_NAME[name] for name in options.only] if options.only else ATTACKS
    wrong = run(attacks, options.share, options.seconds)
    print("\n" + ("\n".join(wrong) or "each row is within the rule"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""Definitions that are bombs, and requests for reports."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tests.hostile.attacks.attacker import MALLORY, Attacker, basic, request, status, told
from tests.hostile.attacks.findings import empty
from tests.hostile.measuring import PROBE


def _refused(attacker: Attacker, text: bytes) -> str:
    """Imports it again and again; what it is answered, which must be a refusal."""
    said: Counter[str] = Counter()
    with attacker.api("guest") as guest:
        for _ in attacker.rounds():
            answer = guest.post("/api/definitions", content=text)
            assert answer.status_code in (400, 413), f"{answer.status_code} {answer.text[:200]}"
            said[f"{answer.status_code} {answer.json().get('reason', '')[:120]}"] += 1
    return told(said)


def deep_definitions(attacker: Attacker) -> str:
    """200,000 tables inside one another."""
    return _refused(attacker, b'{"queues": [' + b'{"a":' * 200_000 + b"1" + b"}" * 200_000 + b"]}")


def deep_arguments(attacker: Attacker) -> str:
    """Arguments nested deeper than a table may be, in 1,000 queues."""
    deep: Any = 1
    for _ in range(500):
        deep = {"a": deep}
    rows = [
        {"name": f"d{n}", "vhost": MALLORY, "durable": True, "arguments": {"x-deep": deep}}
        for n in range(attacker.count(1000))
    ]
    return _refused(attacker, json.dumps({"queues": rows}).encode())


def wide_arguments(attacker: Attacker) -> str:
    """A million arguments of one queue."""
    keys = b",".join(b'"k%d": %d' % (n, n) for n in range(1_000_000))
    return _refused(
        attacker,
        b'{"queues": [{"name": "w", "vhost": "mallory", "durable": true, "arguments": {%s}}]}'
        % keys,
    )


def wide_rows(attacker: Attacker) -> str:
    """Queues with as many arguments as a row may have, 8 MB of them; the last one has more."""
    count = 80
    rows = [
        b'{"name": "w%d", "vhost": "mallory", "durable": true, "arguments": {%s}}'
        % (n, b",".join(b'"k%d": 1' % key for key in range(8_180 + (n == count - 1) * 20)))
        for n in range(count)
    ]
    return _refused(attacker, b'{"queues": [%s]}' % b",".join(rows))


def long_texts(attacker: Attacker) -> str:
    """Queues with an argument of nearly as many bytes as a row may have; the last one is wrong."""
    arguments = {"x-text": "é" * 500_000}
    row = {"vhost": MALLORY, "durable": True, "arguments": arguments}
    rows: list[dict[str, Any]] = [{**row, "name": f"t{number}"} for number in range(7)]
    rows.append({**row, "name": "t7", "arguments": {**arguments, "x-max-length": "many"}})
    return _refused(attacker, json.dumps({"queues": rows}, ensure_ascii=False).encode())


def long_settings(attacker: Attacker) -> str:
    """A queue's argument and a parameter, of nine million characters and of one."""
    said: Counter[str] = Counter()
    with attacker.api("guest") as guest:
        for _ in attacker.rounds():
            for length, allowed in ((9_000_000, (400,)), (1_000_000, (201, 204))):
                text = "x" * length
                bodies: dict[str, Any] = {
                    f"/api/queues/{MALLORY}/long": {"arguments": {"x-text": text}},
                    "/api/global-parameters/long": {"value": text},
                }
                for path, body in bodies.items():
                    answer = guest.put(path, json=body)
                    assert answer.status_code in allowed, answer.text[:200]
                    said[f"{answer.status_code} of {length:,} characters"] += 1
        for path in bodies:
            guest.delete(path).raise_for_status()
    return told(said)


def huge_numbers(attacker: Attacker) -> str:
    """A number of 100,000 digits."""
    return _refused(
        attacker,
        b'{"queues": [{"name": "n", "vhost": "mallory", "arguments": {"x-max-length": 1'
        + b"0" * 100_000
        + b"}}]}",
    )


def huge_names(attacker: Attacker) -> str:
    """Names of a million characters, of everything that has a name."""
    name = "n" * 1_000_000
    row: dict[str, Any] = {"name": name, "vhost": MALLORY, "durable": True, "arguments": {}}
    sections = {
        "queues": [row],
        "exchanges": [{**row, "type": "topic"}],
        "policies": [{**row, "pattern": "^", "definition": {"max-length": 1}}],
        "users": [{"name": name, "password_hash": "", "tags": ""}],
        "vhosts": [{"name": name}],
    }
    return _refused(attacker, json.dumps(sections).encode())


def duplicate_rows(attacker: Attacker) -> str:
    """One queue 100,000 times, with different arguments."""
    rows = [
        {
            "name": "d",
            "vhost": MALLORY,
            "durable": True,
            "arguments": {"x-max-length": 1 + n % 7},
        }
        for n in range(attacker.count(100_000))
    ]
    return _refused(attacker, json.dumps({"queues": rows}).encode())


def duplicate_keys(attacker: Attacker) -> str:
    """Keys that come 100,000 times in a document, and in a queue's arguments."""
    arguments = b'"x-max-length": 1, ' * 100_000 + b'"x-max-length": -1'
    return _refused(
        attacker,
        b'{"queues": [], %s "queues": [{"name": "k", "vhost": "mallory", "arguments": {%s}}]}'
        % (b'"x": [1], ' * 100_000, arguments),
    )


def wide_import(attacker: Attacker) -> str:
    """40,000 queues and as many bindings, taken (8 MB); then one wrong row behind them, so that
    nothing is."""
    count = attacker.count(40_000)
    queues = [
        {"name": f"w{n}", "vhost": MALLORY, "durable": True, "arguments": {}} for n in range(count)
    ]
    bindings = [
        {
            "source": "amq.topic",
            "vhost": MALLORY,
            "destination": f"w{n}",
            "destination_type": "queue",
            "routing_key": f"k.{n}.#",
            "arguments": {},
        }
        for n in range(count)
    ]
    wrong = {"name": "x", "vhost": "none", "durable": True, "arguments": {}}
    with attacker.api("guest") as guest:
        text = json.dumps({"queues": [*queues, wrong], "bindings": bindings}).encode()
        refused = guest.post("/api/definitions", content=text)
        assert refused.status_code == 400 and "none" in refused.text, refused.text[:200]
        text = json.dumps({"queues": queues, "bindings": bindings}).encode()
        guest.post("/api/definitions", content=text).raise_for_status()
        guest.post("/api/definitions", content=text).raise_for_status()
        exported = guest.get(f"/api/definitions/{MALLORY}").raise_for_status()
        found = len(exported.json()["queues"])
        assert found == count, f"{found:,} of {count:,} queues are there"
        empty(guest)
    return f"{count:,} queues with a binding each; {refused.json()['reason'][:100]}"


def _answers(attacker: Attacker, lines: Iterable[str], each: int = 8) -> Counter[int]:
    socks = [attacker.connect("http") for _ in range(each)]
    answers: Counter[int] = Counter()
    heads = [request(line, b"Content-Length: 0", who=basic("guest", "guest")) for line in lines]
    for number in attacker.rounds():
        for sock in socks:
            sock.sendall(heads[number % len(heads)])
        answers.update(status(sock) for sock in socks)
    return answers


def report_runs(attacker: Attacker) -> str:
    """Requests to compute the same reports, without a pause on eight connections."""
    names = ("queue-usage", "traffic", "none")
    answers = _answers(attacker, [f"POST /api/reports/{name}/run" for name in names])
    return f"{told(answers)}; {_cancel_runs(attacker)} runs were begun"


def report_runs_differing(attacker: Attacker) -> str:
    """Requests to compute reports of another period each, and another user's request behind
    them."""
    lines = [
        f"POST /api/reports/traffic/run?from=2026-01-01T00:00Z&to=2026-{m:02}-{d:02}T{h:02}:00Z"
        for m in range(2, 12)
        for d in range(1, 29)
        for h in range(24)
    ]
    answers = _answers(attacker, lines)
    with attacker.api(PROBE) as other:
        asked = other.post("/api/reports/traffic/run")
    return f"{told(answers)}; another user: {asked.status_code}; {_cancel_runs(attacker)} runs"


def _cancel_runs(attacker: Attacker) -> int:
    """Ends what waits and runs; how many there were."""
    count = 0
    with attacker.api("guest") as guest:
        for name in ("queue-usage", "traffic"):
            for run in guest.get(f"/api/reports/{name}").json()["runs"]:
                count += 1
                if run["state"] in ("waiting", "running"):
                    guest.delete(f"/api/reports/{name}/runs/{run['run_id']}")
    return count


def report_pages(attacker: Attacker) -> str:
    """Lists and results of reports, without a pause on eight connections."""
    lines = [
        f"GET /api/reports{rest}"
        for rest in (
            "",
            "/queue-usage",
            "/queue-usage/runs/none",
            "/queue-usage?from=x&" + "y" * 900,
        )
    ]
    return told(_answers(attacker, lines))

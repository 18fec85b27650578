"""`python -m tests.bench`: Leveret and RabbitMQ under the same load, in turn, and the budgets."""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench import bridges, generator, histories, limits, memory, processes, report
from tests.bench.leveret import Leveret
from tests.bench.memory import Broker
from tests.bench.rabbitmq import NotAvailable, RabbitMQ
from tests.bench.scenarios import SCENARIOS, Scenario
from tests.listeners.certificates import Authority


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options; --help prints them."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="one round of 2 s, S1 to S3 and latency"
    )
    parser.add_argument("--only", default="", help="scenarios, comma-separated, e.g. S1,S3")
    parser.add_argument("--rounds", type=int, default=0, help="rounds; the median counts (3)")
    parser.add_argument("--seconds", type=float, default=0, help="length of one measurement (4)")
    parser.add_argument("--memory", action="store_true", help="memory and bindings instead")
    parser.add_argument("--bridges", action="store_true", help="shovels instead")
    parser.add_argument("--history", action="store_true", help="indexes and histories instead")
    parser.add_argument("--no-rabbitmq", action="store_true", help="Leveret alone")
    parser.add_argument("--no-leveret", action="store_true", help="RabbitMQ alone")
    parser.add_argument(
        "--directory", type=Path, help="where data directories go (a temporary one)"
    )
    parser.add_argument("--json", type=Path, help="write all figures to this file as well")
    parser.add_argument(
        "--against", type=Path, help="another checkout, built: the code before, in the same rounds"
    )
    parser.add_argument("--leveret-args", default="", help="more options for the broker")
    return parser.parse_args(arguments)


def chosen(options: argparse.Namespace) -> list[Scenario]:
    """The scenarios asked for."""
    if options.only:
        names = options.only.split(",")
        if unknown := set(names) - {scenario.name for scenario in SCENARIOS}:
            sys.exit(f"bench: no scenario named {', '.join(sorted(unknown))}")
        return [scenario for scenario in SCENARIOS if scenario.name in names]
    return [scenario for scenario in SCENARIOS if scenario.quick or not options.quick]


def measure(broker: Broker, scenario: Scenario, seconds: float) -> dict[str, Any]:
    """One measurement of one scenario; {"failed": text} when it could not be completed."""
    arguments = [*scenario.options, "--warmup", "1", "--duration", str(seconds)]
    if scenario.door not in broker.ports:
        return {"failed": f"{broker.name} has no such listener here: {scenario.door}"}
    try:
        result = generator.run(broker.ports[scenario.door], arguments, broker.pids())
    except generator.GeneratorFailed as error:
        return {"failed": str(error)}
    result["rss"] = processes.resident_bytes(broker.pids())
    return result


def median_of(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians of the figures of several rounds; a failed round makes the whole failed."""
    for result in results:
        if "failed" in result:
            return result
    merged: dict[str, Any] = {
        key: statistics.median(result[key] for result in results)
        for key in ("rate", "cpu_us_per_message", "generator_cpu_us_per_message", "rss")
    }
    for group in ("latency_us", "confirm_us"):
        merged[group] = {
            key: statistics.median(result[group][key] for result in results)
            for key in ("p50", "p99")
        }
    if "sync_ms" in results[0]:
        merged["sync_ms"] = statistics.median(result["sync_ms"] for result in results)
    merged["cpu_us_all"] = [result["cpu_us_per_message"] for result in results]
    return merged


def start_brokers(options: argparse.Namespace, base: Path) -> tuple[list[Broker], dict[str, str]]:
    """The brokers that run, and for those that do not the reason."""
    tls = Authority(base / "tls").issue("localhost")
    brokers: list[Broker] = []
    absent: dict[str, str] = {}
    makers: list[tuple[str, Any]] = []
    if not options.no_leveret:
        extra = options.leveret_args.split()
        makers.append(("Leveret", lambda: Leveret(base / "leveret", extra, tls=tls)))
    if options.against:
        tree = options.against.resolve()
        makers.append(
            ("before", lambda: Leveret(base / "before", tree=tree, name="before", tls=tls))
        )
    if not options.no_rabbitmq:
        makers.append(("RabbitMQ", lambda: RabbitMQ(base / "rabbitmq", tls=tls)))
    for name, make in makers:
        try:
            broker = make()
            broker.start()
            brokers.append(broker)
        except (NotAvailable, RuntimeError) as error:
            absent[name] = str(error)
    return brokers, absent


def run(options: argparse.Namespace, base: Path) -> dict[str, Any]:
    """Measures everything asked for; returns all figures."""
    figures: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "machine": f"{platform.machine()}, {report.processor()}, Linux {platform.release()}",
        "sync": limits.measure_sync(base).__dict__,
        "relay_seconds_per_byte": limits.measure_relay(),
    }
    brokers, absent = start_brokers(options, base)
    figures["absent"] = absent
    figures["versions"] = {broker.name: broker.version for broker in brokers}
    try:
        if options.memory:
            figures["memory"] = {
                broker.name: memory.measure(broker, options.quick or broker.name == "RabbitMQ")
                for broker in brokers
            }
            return figures
        rounds = options.rounds or (1 if options.quick else 3)
        seconds = options.seconds or (2.0 if options.quick else 4.0)
        collected: dict[str, dict[str, list[dict[str, Any]]]] = {}
        for number in range(rounds):
            for scenario in chosen(options):
                for broker in brokers:
                    report.progress(f"round {number + 1}/{rounds}: {scenario.name} {broker.name}")
                    result = measure(broker, scenario, seconds)
                    if scenario.is_beside_disk:  # as it is now, not at the start
                        result["sync_ms"] = limits.measure_sync(base, 1.0).p50_ms
                    rows = collected.setdefault(scenario.name, {}).setdefault(broker.name, [])
                    rows.append(result)
        report.progress("")
        figures["rounds"], figures["seconds"] = rounds, seconds
        figures["scenarios"] = {
            name: {broker: median_of(results) for broker, results in rows.items()}
            for name, rows in collected.items()
        }
    finally:
        for broker in brokers:
            broker.stop()
    return figures


def main() -> int:
    """Exit status 0 when everything ran; budgets that are missed are printed, not failed."""
    options = parse(sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the brokers are ended
    base = options.directory or Path(tempfile.mkdtemp(prefix="leveret-bench-"))
    base.mkdir(parents=True, exist_ok=True)
    try:
        if options.bridges:
            return bridges.main(options, base)
        if options.history:
            return histories.main(options, base)
        figures = run(options, base)
    finally:
        if not options.directory:
            shutil.rmtree(base, ignore_errors=True)
    print(report.render(figures))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 1 if report.failures(figures) else 0


if __name__ == "__main__":
    sys.exit(main())

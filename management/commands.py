"""What the long-running commands of manage.py do: read the settings, then hand over to a process.

Nothing heavy is imported before it is known which command it is: the broker never pays for
Django, and `--help` pays for nothing.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence

from broker.process import lifetime, logs
from broker.settings import config as settings

SUMMARIES = {
    "serve": "Start the appliance: broker, web app, reports, tiers and bridges. Ctrl-C stops it.",
    "broker": "Start the broker alone.",
    "web": "Start the web app alone; it waits for a broker on the same data directory.",
    "reports": "Compute usage reports on schedule and on demand, for the same data directory.",
    "bridges": "Run the shovels of a broker on the same data directory.",
    "tiers": "Put segments of streams into the object store, for the same data directory.",
    "demo": "Run a small shop against the running appliance.",
    "backup": "Copy the data directory, also while the broker runs: backup DIR.",
    "ctl": "Administer a running broker from a shell: ctl help.",
    "report": "Compute a report and write it: report traffic --from 2026-11-01.",
    "report-job": "Write what spark-submit needs to compute reports elsewhere: report-job DIR.",
    "perf": "Load a broker and measure it: perf throughput -z 10.",
}
OWN_OPTIONS = {
    "demo": "management.demo",
    "backup": "management.backup",
    "ctl": "management.ctl.main",
    "perf": "management.perf.main",
    "report": "management.report",
    "report-job": "management.report_job",
}
MAINS = {
    "broker": "broker.server.app",
    "web": "management.web",
    "reports": "management.reports.process",
    "bridges": "management.bridges.process",
    "tiers": "management.tiers.process",
}


def enter(command: str, argv: Sequence[str]) -> int:
    """Run one of the commands with the options that follow its name; returns its exit status."""
    # Whatever is made holds messages, hashes or names: it is the owner's alone.
    os.umask(0o077)
    if command in OWN_OPTIONS:
        main: Callable[[Sequence[str]], int] = importlib.import_module(OWN_OPTIONS[command]).main
        return main(argv)
    if "--help" in argv or "-h" in argv:
        print(settings.help_text(command, SUMMARIES[command]))
        return 0
    # Taken away: processes that this one starts have no use for what is secret in it.
    given = os.environ.pop(settings.IN_FORCE, None)
    try:
        if given is not None:
            config = settings.as_in_force(given, argv)
        else:
            config = settings.load(argv, os.environ)
    except settings.ConfigError as error:
        print(f"leveret {command}: {logs.one_line(str(error))}", file=sys.stderr)
        return settings.EXIT_CONFIG
    if not lifetime.is_supervised():
        for warning in config.warnings:
            print(f"leveret {command}: warning: {logs.one_line(warning)}", file=sys.stderr)
    logs.configure(command, config.log_level, config.log_format, config.log_lines_per_second)
    if command == "serve":
        from management import starting, supervisor

        lifetime.watch(len(starting.PORTS) * config.stop_timeout)  # one after the other
        return supervisor.main(config, argv)
    lifetime.watch(config.stop_timeout)
    try:
        status: int = importlib.import_module(MAINS[command]).main(config)
    finally:
        lifetime.leave()
    return status

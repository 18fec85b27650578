"""Writes docs/command-line.md from the tables of commands in management/ctl and management/perf.

With --check it writes nothing and ends with 1 if the page is not what the tables say.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from written_page import written  # noqa: E402

from management.ctl import commands as commands  # noqa: E402
from management.ctl import helping  # noqa: E402
from management.ctl.parsing import GENERAL  # noqa: E402
from management.ctl.table import (  # noqa: E402
    ALIASES,
    COMMANDS,
    EXIT_CODES,
    GROUPS,
    Command,
    Parameter,
)
from management.perf import options as perf  # noqa: E402

PAGE = ROOT / "docs" / "command-line.md"

HEAD = """\
# The command line

<!-- Written by tools/command_line_page.py from the tables in management/ctl and management/perf.
Do not edit. -->

## ctl

`manage.py ctl COMMAND` administers a running broker over the control socket of its data directory
([control-socket.md](control-socket.md)). It needs neither the web process nor a password: a
process that may open the socket (mode 0600: its owner and root) is administrator. Commands
have the names, options and columns of `rabbitmqctl`, `rabbitmq-diagnostics` and `lavinmqctl`.

    manage.py ctl list_queues -p orders name messages consumers
    manage.py ctl --format json status
    manage.py ctl add_user ada < password.txt

`manage.py ctl help COMMAND` explains a command. Options may stand before or after it; words behind
`--` are no options. A password that is left out is read from the terminal, or from the first line
of standard input. Control characters in names are printed escaped. Tables are aligned for people;
scripts use `--format json`, `tsv` or `csv`.

Shells complete commands, options, columns and names of objects:

    source <(manage.py ctl completion bash)
"""


PERF = """\
## perf

`manage.py perf MODE` loads a broker over AMQP and measures it, with the modes and options of
`lavinmqperf`; it works against any AMQP 0-9-1 broker. Without `--uri` it takes the broker that runs
on the data directory. Ctrl-C ends a run with its summary. `--json` prints the summary as one
object: rates are a second, latencies microseconds. Bodies of 16 bytes or more carry the time of
their publish; the latency is the time from there to the read of the delivery, by one clock, so both
ends are in this process. Messages of other runs count, their latency does not. Status 70 says that
a body was wrong (`--verify`); 64, 69 and 0 are as above.

    manage.py perf throughput -z 10 -l
    manage.py perf throughput --uri amqp://guest:guest@other/ -p -c 1000 -a 100 -P 1000
    manage.py perf connection-churn -x 4 -z 5 --json

One process with one event loop runs publishers and consumers, so that it is bounded by one core.
The generator in C ([benchmarks.md](benchmarks.md)) stays the measure of record.
"""


def page() -> str:
    lines = [HEAD, "### Options of every command", "", *_parameters(GENERAL)]
    lines += ["### Exit status", "", "| Status | When |", "| --- | --- |"]
    lines += [f"| {status} | {text} |" for status, text in EXIT_CODES.items()]
    for group, title in GROUPS.items():
        lines += ["", f"### {title}", ""]
        known = [one for one in COMMANDS.values() if one.group == group]
        for command in known:
            if command.examples:
                lines += _command(command)
        absent = [one for one in known if not one.examples]
        if absent:
            lines += ["Commands of `rabbitmqctl` and `lavinmqctl` without a counterpart end with"]
            lines += ["status 70 and the reason:", "", "| Command | Reason |", "| --- | --- |"]
            lines += [f"| `{one.name}` | {_cell(one.help)} |" for one in absent]
    lines += ["", PERF]
    for mode, (text, example) in perf.MODES.items():
        lines += [f"### {mode}", "", text, "", f"    {perf.PROGRAM} {example}", ""]
        lines += ["| Option | Meaning |", "| --- | --- |"]
        lines += [
            f"| `{one.spelled}` | {_cell(one.explained)} |"
            for one in perf.OPTIONS
            if mode in one.modes
        ]
        lines += [""]
    return "\n".join(lines).rstrip() + "\n"


def _command(command: Command) -> list[str]:
    lines = [f"#### {command.name}", "", command.help, "", f"    {command.usage}", ""]
    other = [f"`{name}`" for name, target in ALIASES.items() if target == command.name]
    if other:
        lines += [f"Also called {', '.join(other)}.", ""]
    if command.parameters:
        lines += _parameters(command.parameters)
    if command.columns:
        columns = ", ".join(f"`{name}`" for name in command.columns)
        shown = ", ".join(f"`{name}`" for name in command.shown)
        lines += [f"Columns: {columns}. Without any: {shown}.", ""]
    if command.verb:
        lines += [f"Control verb: `{command.verb}`.", ""]
    lines += [f"    {helping.example(one)}" for one in command.examples]
    return [*lines, ""]


def _parameters(parameters: tuple[Parameter, ...]) -> list[str]:
    lines = ["| Argument | Meaning |", "| --- | --- |"]
    lines += [
        f"| `{helping.spelled(one)}` | {_cell(helping.explained(one))} |" for one in parameters
    ]
    return [*lines, ""]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(written(PAGE, page()))

"""Writes docs/command-line.md from the tables of commands in management/ctl and management/perf.

With --check it writes nothing and ends with 1 if the page is not what the tables say.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

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

PAGE = ROOT / "docs" / "command-line.md"

HEAD = """\
# The command line

<!-- Written by tools/command_line_page.py from the tables in management/ctl and management/perf.
Do not edit. -->

## ctl

`manage.py ctl COMMAND` administers a running broker over the control socket of its data directory
([control-socket.md](control-socket.md)). It needs neither the web process nor a password: whoever
may open the socket (mode 0600, so its owner and root) is administrator. Commands have the names,
options and columns of `rabbitmqctl`, `rabbitmq-diagnostics` and `lavinmqctl`.

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


def main() -> int:
    if sys.argv[1:] == ["--check"]:
        if not PAGE.exists() or PAGE.read_text() != page():
            print(f"{PAGE.relative_to(ROOT)} is out of date; run `make docs`")
            return 1
        return 0
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Help texts and the manual page, from the table."""

from __future__ import annotations

import textwrap

from broker.process.lifetime import program
from management.ctl.parsing import GENERAL
from management.ctl.table import ALIASES, COMMANDS, EXIT_CODES, GROUPS, Command, Parameter

WIDTH = 96
PROGRAM = f"{program()} ctl"


def overview() -> str:
    """All commands by group."""
    lines = [
        f"usage: {PROGRAM} [options] COMMAND [arguments]",
        "",
        "Administers a running broker over the control socket of its data directory.",
        "",
        "Options of every command:",
        *_rows(GENERAL),
    ]
    width = max(len(name) for name in COMMANDS)
    for group, title in GROUPS.items():
        lines += ["", f"{title}:"]
        for command in COMMANDS.values():
            if command.group == group:
                lines += _row(command.name, command.help, width)
    lines += ["", f"{PROGRAM} help COMMAND explains one command, with examples."]
    return "\n".join(lines)


def page(command: Command) -> str:
    """One command with its parameters and examples."""
    lines = [f"usage: {PROGRAM} {command.usage}", "", *textwrap.wrap(command.help, WIDTH)]
    other = [name for name, target in ALIASES.items() if target == command.name]
    if other:
        lines += ["", f"Also called: {', '.join(other)}"]
    if command.parameters:
        lines += ["", "Arguments and options:", *_rows(command.parameters)]
    if command.columns:
        columns = ", ".join(command.columns)
        lines += ["", "Columns:"]
        lines += textwrap.wrap(columns, WIDTH, initial_indent="  ", subsequent_indent="  ")
        lines += [f"Without any: {', '.join(command.shown)}"]
    if command.verb:
        lines += ["", f"Control verb: {command.verb}"]
    if command.examples:
        lines += ["", "Examples:", *(f"  {example(one)}" for one in command.examples)]
    return "\n".join(lines)


def example(words: str) -> str:
    """An example as a whole line of a shell."""
    return words if PROGRAM in words else f"{PROGRAM} {words}"


def exit_codes() -> str:
    lines = []
    for status, text in EXIT_CODES.items():
        lines += _row(str(status), text, 3)
    return "\n".join(lines)


def spelled(parameter: Parameter) -> str:
    """A parameter with its other names and the place of its value."""
    if not parameter.is_option:
        return parameter.name
    names = ", ".join((*parameter.also, parameter.name))
    return names if parameter.flag else f"{names} {parameter.key.upper()}"


def explained(parameter: Parameter) -> str:
    """Its help with choices and default."""
    more = []
    if parameter.choices and parameter.key != "format":
        more.append(f"One of {', '.join(parameter.choices)}.")
    if parameter.default not in (None, "", {}) and not parameter.flag and parameter.is_option:
        more.append(f"Default: {parameter.default}.")
    return " ".join([parameter.help, *more])


def _rows(parameters: tuple[Parameter, ...]) -> list[str]:
    width = max(len(spelled(one)) for one in parameters)
    return [
        line for one in parameters for line in _row(spelled(one), explained(one), min(width, 34))
    ]


def _row(name: str, text: str, width: int) -> list[str]:
    indent = " " * (width + 4)
    lines = textwrap.wrap(text, WIDTH - len(indent)) or [""]
    first = f"  {name.ljust(width)}  {lines[0]}"
    if len(name) > width:
        return [f"  {name}", *(indent + line for line in lines)]
    return [first, *(indent + line for line in lines[1:])]

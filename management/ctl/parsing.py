"""From a command line to a command and its options."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from management.ctl.output import FORMATS
from management.ctl.table import ALIASES, COMMANDS, USAGE, Command, CommandError, Parameter, whole


def seconds(text: str) -> float:
    """A time in seconds; `infinity` is none."""
    if text == "infinity":
        return float("inf")
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"'{text[:100]}' is not a number of seconds") from None
    if not value > 0:
        raise ValueError("a timeout is more than 0 seconds")
    return value


GENERAL: tuple[Parameter, ...] = (
    Parameter(
        name="--vhost", also=("-p",), help="Virtual host of the command (/).", names="vhosts"
    ),
    Parameter(
        name="--format",
        also=("-f", "--formatter"),
        help="text, json, tsv, csv or pretty_table.",
        choices=tuple(FORMATS),
        default="text",
    ),
    Parameter(name="--quiet", also=("-q",), flag=True, help="Print answers only."),
    Parameter(
        name="--silent", also=("-s",), flag=True, help="As --quiet, and no column names either."
    ),
    Parameter(name="--no-table-headers", flag=True, help="Leave out the names of columns."),
    Parameter(name="--timeout", also=("-t",), help="Seconds to wait (60).", read=seconds),
    Parameter(name="--data-dir", help="Data directory of the broker, with its control socket."),
    Parameter(name="--config", help="INI file that names the data directory."),
    Parameter(name="--socket", help="Path of the control socket, if it is elsewhere."),
    Parameter(name="--node", also=("-n",), help="Ignored; accepted as an option of rabbitmqctl."),
    Parameter(name="--longnames", also=("-l",), flag=True, help="Ignored, as --node."),
)
"""Options of every command."""


_NEGATIVE = re.compile(r"-\d+(\.\d+)?")


class UsageError(CommandError):
    """A command line that cannot be read; `command` is the one whose usage helps."""

    def __init__(self, text: str, command: Command | None = None) -> None:
        super().__init__(text, USAGE)
        self.command = command


class _Parser(argparse.ArgumentParser):
    def __init__(self, command: Command) -> None:
        super().__init__(add_help=False, allow_abbrev=False, prog=command.name)
        self._command = command

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self._command.name}: {message}", self._command)


def split(argv: Sequence[str]) -> tuple[str | None, list[str]]:
    """The name of the command, and the words without it; options may come before it."""
    with_value = {word for one in GENERAL if not one.flag for word in (one.name, *one.also)}
    at = 0
    while at < len(argv):
        word = argv[at]
        if word == "--":
            break
        if word in with_value:
            at += 2
        elif word.startswith("-") and word != "-":
            at += 1
        else:
            return word, [*argv[:at], *argv[at + 1 :]]
    return None, list(argv)


def find(name: str) -> Command:
    """The command of that name or alias. Raises UsageError, with similar names."""
    command = COMMANDS.get(ALIASES.get(name, name))
    if command is None:
        import difflib

        near = difflib.get_close_matches(name, [*COMMANDS, *ALIASES], 3)
        hint = f"; did you mean {' or '.join(near)}?" if near else "; see help"
        raise UsageError(f"unknown command '{name[:100]}'{hint}")
    return command


def options(command: Command, words: Sequence[str]) -> dict[str, Any]:
    """The values of a command's parameters and of the general options, by key. Raises UsageError
    for what cannot be understood, CommandError 65 for a value that cannot be read."""
    parser = _Parser(command)
    known = [*GENERAL, *command.parameters]
    for parameter in known:
        if parameter.is_option:
            _add(parser, parameter)
    end = list(words).index("--") if "--" in words else len(words)
    try:
        read, others = parser.parse_known_args(words[:end])
    except argparse.ArgumentError as error:
        raise UsageError(f"{command.name}: {error}", command) from None
    for word in others:
        if word.startswith("-") and word != "-" and not _NEGATIVE.fullmatch(word):
            raise UsageError(
                f"{command.name} has no option {word[:100]}; words behind -- are no options",
                command,
            )
    found = vars(read) | _positional(command, [*others, *words[end + 1 :]])
    for parameter in known:
        value = found[parameter.key]
        if isinstance(value, str) and not parameter.flag:
            _choose(command, parameter, value)
            try:
                found[parameter.key] = parameter.read(value)
            except ValueError as error:
                status = USAGE if parameter.read in (whole, seconds) else 65
                raise CommandError(f"{parameter.name}: {error}", status) from None
        elif parameter.many and not value:
            found[parameter.key] = []
        elif value is None:
            found[parameter.key] = parameter.default
    found["vhost_given"] = found["vhost"] is not None
    return found


def _choose(command: Command, parameter: Parameter, value: str) -> None:
    if parameter.choices and value not in parameter.choices:
        raise UsageError(
            f"{command.name}: {parameter.name} is one of {', '.join(parameter.choices)}, "
            f"not '{value[:100]}'",
            command,
        )


def _positional(command: Command, words: list[str]) -> dict[str, Any]:
    """Words to the positional parameters in their order. Raises UsageError."""
    found: dict[str, Any] = {}
    for parameter in command.parameters:
        if parameter.is_option:
            continue
        if parameter.many:
            found[parameter.key], words = words, []
        else:
            found[parameter.key] = words.pop(0) if words else None
        if not found[parameter.key] and found[parameter.key] != "" and not parameter.optional:
            raise UsageError(f"{command.name}: {parameter.key.upper()} is missing", command)
    if words:
        raise UsageError(f"{command.name}: '{words[0][:100]}' is one argument too many", command)
    return found


def _add(parser: argparse.ArgumentParser, parameter: Parameter) -> None:
    if parameter.flag:
        parser.add_argument(
            parameter.name, *parameter.also, dest=parameter.key, action="store_true"
        )
    else:
        parser.add_argument(parameter.name, *parameter.also, dest=parameter.key)

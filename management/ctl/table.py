"""The table of commands: name, parameters, help, example, control verb.

A row without a `run` function calls its verb with the parameters as arguments.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from broker.settings.config import Config
    from management.broker_client import Push

EXIT_CODES: dict[int, str] = {
    0: "The command succeeded.",
    64: "Usage: an unknown command, option or column, or a missing argument.",
    65: "Data: the broker refused a value, JSON cannot be read, the vhost does not exist, or the "
    "credentials are wrong.",
    67: "The user does not exist.",
    69: "Unavailable: the broker is not running, the object does not exist, or a health check "
    "failed.",
    70: "Software: the object exists already, the command has no meaning here, or the broker met a "
    "defect of its own.",
    75: "Temporary: no answer in time, or the broker is busy; try again.",
    77: "Permission: the control socket belongs to another user of the system.",
    78: "Configuration: a setting of Leveret cannot be read.",
    130: "Interrupted with Ctrl-C.",
}
"""Exit statuses, as sysexits.h and rabbitmqctl use them."""

USAGE, DATA, NO_USER, UNAVAILABLE, SOFTWARE = 64, 65, 67, 69, 70
TEMPORARY, NO_PERMISSION, CONFIG, INTERRUPTED = 75, 77, 78, 130

GROUPS: dict[str, str] = {
    "help": "Help",
    "users": "Users",
    "access": "Permissions",
    "vhosts": "Virtual hosts",
    "queues": "Queues",
    "exchanges": "Exchanges, bindings and messages",
    "policies": "Policies",
    "parameters": "Parameters",
    "connections": "Connections, channels and consumers",
    "definitions": "Definitions",
    "node": "Node",
    "health": "Health checks",
}


class CommandError(Exception):
    """A command that failed: the text for the person, and the exit status."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class Call(Protocol):
    """One run of a command, as its function sees it."""

    options: Mapping[str, Any]
    """Parameters by their `key`, and the general options."""
    vhost: str
    timeout: float | None

    async def ask(self, verb: str, **arguments: Any) -> Any:
        """The answer of a control verb. Raises CommandError."""

    def slices(self, verb: str, **arguments: Any) -> AsyncGenerator[dict[str, Any]]:
        """The answer of a control verb that has `slices`, in these; to be closed. Raises
        CommandError, also in the middle."""

    async def rows(self, noun: str, **arguments: Any) -> list[dict[str, Any]]:
        """The rows of a list, read in slices. Raises CommandError."""

    def events(self) -> AsyncGenerator[Push]:
        """What happens in the broker, as it happens; to be closed. Raises CommandError, also when
        the broker goes."""

    def read_secret(self, prompt: str) -> str:
        """A secret from the terminal without echo, or the first line of standard input."""

    def settings(self) -> Config:
        """The settings that the command line, the environment and the file say. Raises
        CommandError."""

    def process(self) -> int:
        """The process id of the supervisor, or of a broker that runs alone. Raises
        CommandError."""


Run = Callable[[Call], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A positional argument (`queue`) or an option (`--durable`).

    `to`: the argument of the verb that it becomes. `read` turns text into a value and raises
    ValueError. `names`: the kind of names that shells complete, a noun of the control socket.
    """

    name: str
    help: str
    to: str = ""
    read: Callable[[str], Any] = str
    optional: bool = False
    many: bool = False
    flag: bool = False
    default: Any = None
    choices: tuple[str, ...] = ()
    names: str = ""
    also: tuple[str, ...] = ()

    @property
    def is_option(self) -> bool:
        return self.name.startswith("-")

    @property
    def key(self) -> str:
        """Its name among the options of a call."""
        return self.name.lstrip("-").replace("-", "_")

    @property
    def usage(self) -> str:
        """How it stands in a usage line."""
        if self.flag:
            return f"[{self.name}]"
        if self.is_option:
            return f"[{self.name} {self.key.upper()}]"
        shown = f"{self.name.upper()} ..." if self.many else self.name.upper()
        return f"[{shown}]" if self.optional or self.many else shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One row. `says` is the line printed before text output, with parameters in braces; `vhost`:
    it works in the vhost of `-p`; `verb` is the control verb behind it, empty where the command
    works on processes or files; `fixed` are arguments of the verb that the command sets itself."""

    name: str
    group: str
    help: str
    examples: tuple[str, ...]
    verb: str = ""
    parameters: tuple[Parameter, ...] = ()
    run: Run | None = None
    says: str = ""
    vhost: bool = False
    also: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    shown: tuple[str, ...] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def usage(self) -> str:
        words = [self.name, *(["[-p VHOST]"] if self.vhost else [])]
        words += [one.usage for one in self.parameters if one.is_option]
        words += [one.usage for one in self.parameters if not one.is_option]
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class Rows:
    """A table as the answer of a command: column names and the values in each row."""

    columns: tuple[str, ...]
    rows: list[list[Any]]


@dataclass(frozen=True, slots=True)
class Facts:
    """Titled groups of facts as the answer of a command. `data` is what JSON shows."""

    groups: Mapping[str, Mapping[str, Any]]
    data: Any


PRINTED = object()
"""The answer of a command that has printed it already, piece by piece."""

COMMANDS: dict[str, Command] = {}
"""Every command by its name."""

ALIASES: dict[str, str] = {}
"""Other accepted names of commands."""


def enter(*commands: Command) -> None:
    """Enters rows into the table."""
    for command in commands:
        COMMANDS[command.name] = command
        ALIASES.update(dict.fromkeys(command.also, command.name))


def runs(command: Command) -> Callable[[Run], Run]:
    """Enters a row whose work is the decorated function."""

    def put(run: Run) -> Run:
        enter(replace(command, run=run))
        return run

    return put


# Readers of values.


def json_value(text: str) -> Any:
    """Any JSON value."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"'{text[:100]}' is not valid JSON: {error}") from None


def json_object(text: str) -> dict[str, Any]:
    """A JSON object."""
    value = json_value(text)
    if not isinstance(value, dict):
        raise ValueError(f"'{text[:100]}' is not a JSON object; write for example '{{\"key\": 1}}'")
    return value


def whole(text: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"'{text[:100]}' is not a whole number") from None


def words(text: str) -> list[str]:
    """Words between commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


# Parameters that several commands have.


def user(**more: Any) -> Parameter:
    return Parameter(name="username", help="Name of the user.", names="users", **more)


def queue(**more: Any) -> Parameter:
    return Parameter(name="queue", help="Name of the queue.", to="name", names="queues", **more)


def name(what: str, names: str = "", **more: Any) -> Parameter:
    return Parameter(name="name", help=f"Name of the {what}.", names=names, **more)


PASSWORD = Parameter(
    name="password",
    help="Password. Without it the command reads it from the terminal or from the first line of "
    "standard input, so that no list of processes shows it.",
    optional=True,
)
ARGUMENTS = Parameter(
    name="--arguments", help="Arguments as a JSON object.", read=json_object, default={}
)

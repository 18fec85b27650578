"""Commands on the command line itself: help, version, shell completion."""

from __future__ import annotations

from importlib import metadata
from typing import Any

from broker.process.lifetime import program
from management.ctl import completion, helping
from management.ctl.parsing import find
from management.ctl.table import COMMANDS, Call, Command, Parameter, runs

NAME_KEYS = {"users": "name", "bindings": "properties_key"}


@runs(
    Command(
        name="help",
        group="help",
        help="Lists all commands, or explains one with examples.",
        examples=("help", "help set_policy", "help exit_codes"),
        parameters=(Parameter(name="topic", help="A command, or exit_codes.", optional=True),),
    )
)
async def help_(call: Call) -> str:
    topic = call.options["topic"]
    if topic is None:
        return helping.overview()
    if topic == "exit_codes":
        return helping.exit_codes()
    return helping.page(find(topic))


@runs(
    Command(
        name="version",
        group="help",
        help="Prints the version of this program.",
        examples=("version",),
    )
)
async def version(call: Call) -> str:
    try:
        return metadata.version("leveret")
    except metadata.PackageNotFoundError:
        return "0.1.0"


@runs(
    Command(
        name="completion",
        group="help",
        help="Prints a completion script for a shell.",
        examples=(
            f"source <({program()} ctl completion bash)",
            "completion zsh > ~/.zfunc/_leveret",
            "completion fish > ~/.config/fish/completions/leveret.fish",
        ),
        parameters=(
            Parameter(name="shell", help="Which.", choices=tuple(completion.SCRIPTS)),
            Parameter(
                name="--program",
                help="Name that the program is called by.",
                default=program(),
            ),
        ),
    )
)
async def completion_(call: Call) -> str:
    return completion.SCRIPTS[call.options["shell"]](call.options["program"], COMMANDS)


@runs(
    Command(
        name="list_names",
        group="help",
        help="Prints the names of one kind of objects, one a line, for shell completion.",
        examples=("list_names queues -p orders",),
        verb="list",
        parameters=(Parameter(name="kind", help="A noun of the control socket."),),
        vhost=True,
    )
)
async def list_names(call: Call) -> str:
    kind = call.options["kind"]
    of_vhost = kind in ("queues", "exchanges", "policies", "operator-policies")
    arguments: dict[str, Any] = {"vhost": call.vhost} if of_vhost else {}
    rows = await call.rows(kind, columns=["name"], **arguments)
    # A name with a line break would be two.
    return "\n".join(row["name"] for row in rows if row.get("name", "").isprintable())

"""Commands on shovels: their states, pause, resume, restart, and a trial of the connections."""

from __future__ import annotations

from typing import Any

from management.ctl.table import (
    SOFTWARE,
    Call,
    Command,
    CommandError,
    Parameter,
    Rows,
    enter,
    json_object,
    name,
    runs,
)

COLUMNS = (
    "name",
    "vhost",
    "state",
    "src_uri",
    "dest_uri",
    "rate",
    "message_count",
    "pending",
    "reason",
)


@runs(
    Command(
        name="shovel_status",
        group="parameters",
        help="Shows the shovels of all virtual hosts: state, rate, how many messages are moved, "
        "and why one does not run.",
        examples=("shovel_status",),
        verb="shovel.list",
        says="Shovel status ...",
    )
)
async def _status(call: Call) -> Rows:
    found = await call.ask("shovel.list")
    return Rows(COLUMNS, [[row[column] for column in COLUMNS] for row in found])


for _word, _help, _says in (
    ("pause", "Stops a shovel until resume_shovel, over restarts, too.", "Pausing"),
    ("resume", "Lets a paused shovel run again.", "Resuming"),
    ("restart", "Closes the connections of a shovel and begins anew.", "Restarting"),
):
    enter(
        Command(
            name=f"{_word}_shovel",
            group="parameters",
            help=_help,
            examples=(f"{_word}_shovel copy",),
            verb=f"shovel.{_word}",
            parameters=(name("shovel"),),
            says=f'{_says} shovel "{{name}}" in vhost "{{vhost}}" ...',
            vhost=True,
        )
    )


@runs(
    Command(
        name="test_shovel",
        group="parameters",
        help="Tries both ends of a definition, and says which step fails. Nothing is declared or "
        "moved.",
        examples=(
            'test_shovel copy \'{"src-uri": "amqp://", "src-queue": "jobs", '
            '"dest-uri": "amqp://user:password@far", "dest-queue": "jobs"}\'',
        ),
        verb="shovel.test",
        parameters=(
            name("shovel"),
            Parameter(name="definition", help="A JSON object.", read=json_object),
        ),
        says='Testing shovel "{name}" in vhost "{vhost}" ...',
        vhost=True,
    )
)
async def _try(call: Call) -> Rows:
    return steps_of(
        await call.ask(
            "shovel.test",
            vhost=call.vhost,
            name=call.options["name"],
            value=call.options["definition"],
        )
    )


def steps_of(steps: list[dict[str, Any]]) -> Rows:
    """What a trial found, as a table."""
    if not steps:
        raise CommandError("nothing was tried", SOFTWARE)
    words = {True: "ok", False: "failed"}
    return Rows(
        ("step", "result", "text"),
        [[step["step"], words[step["is_fine"]], step["text"]] for step in steps],
    )

"""Commands on the links of federation, with RabbitMQ's names, and on sets of upstreams."""

from __future__ import annotations

from management.ctl.shovels import steps_of
from management.ctl.table import (
    UNAVAILABLE,
    Call,
    Command,
    CommandError,
    Parameter,
    Rows,
    json_object,
    name,
    runs,
)

COLUMNS = (
    "id",
    "vhost",
    "type",
    "name",
    "upstream",
    "upstream_name",
    "status",
    "uri",
    "rate",
    "message_count",
    "error",
)


@runs(
    Command(
        name="federation_status",
        group="parameters",
        help="Shows the links of federated exchanges and queues: state, rate, how many messages "
        "came, and why one does not run.",
        examples=("federation_status", "federation_status --only-down"),
        verb="federation.list",
        parameters=(
            Parameter(name="--only-down", help="Only links that neither run nor start.", flag=True),
        ),
        says="Listing federation links ...",
    )
)
async def _status(call: Call) -> Rows:
    found = await call.ask("federation.list", down=bool(call.options["only_down"]))
    rows = []
    for row in found:
        kind = row["type"]
        shown = {**row, "name": row[kind], "upstream_name": row[f"upstream_{kind}"]}
        rows.append([shown.get(column, "") for column in COLUMNS])
    return Rows(COLUMNS, rows)


@runs(
    Command(
        name="restart_federation_link",
        group="parameters",
        help="Closes the connections of a federation link and begins anew.",
        examples=("restart_federation_link 6dbf2d1c",),
        verb="federation.restart",
        parameters=(Parameter(name="link_id", help="Its id, as federation_status shows it."),),
        says="Restarting federation link {link_id} ...",
    )
)
async def _restart(call: Call) -> None:
    wanted = call.options["link_id"]
    found = [row for row in await call.ask("federation.list") if row["id"] == wanted]
    if not found:
        raise CommandError(f"there is no federation link {wanted}", UNAVAILABLE)
    await call.ask("federation.restart", vhost=found[0]["vhost"], id=wanted)


@runs(
    Command(
        name="test_federation",
        group="parameters",
        help="Tries the definition of an upstream, and says which step fails. Nothing is declared "
        "or moved.",
        examples=('test_federation far \'{"uri": "amqps://user:password@far"}\'',),
        verb="federation.test",
        parameters=(
            name("federation upstream"),
            Parameter(name="definition", help="A JSON object.", read=json_object),
        ),
        says='Testing federation upstream "{name}" in vhost "{vhost}" ...',
        vhost=True,
    )
)
async def _try(call: Call) -> Rows:
    return steps_of(
        await call.ask(
            "federation.test",
            vhost=call.vhost,
            name=call.options["name"],
            value=call.options["definition"],
        )
    )

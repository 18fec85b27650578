"""Commands that move and copy messages between queues, and replay those of streams."""

from __future__ import annotations

import sys
import time
from typing import Any

from management.ctl import output
from management.ctl.table import (
    USAGE,
    Call,
    Command,
    CommandError,
    Parameter,
    Rows,
    enter,
    queue,
    runs,
    whole,
)
from management.replay_words import replay_arguments
from management.search_words import BadWords

_FILTER = (
    Parameter(name="--routing-key", help="Pattern for routing keys (RE2)."),
    Parameter(name="--header", help="Name of a header."),
    Parameter(name="--value", help="What that header reads."),
    Parameter(name="--older-than", help="Seconds since the publish, at least.", read=whole),
    Parameter(name="--newer-than", help="Seconds since the publish, at most.", read=whole),
)
_TARGET = (
    Parameter(
        name="--target-vhost", help="Virtual host of the target (that of -p).", names="vhosts"
    ),
    Parameter(name="--to-exchange", flag=True, help="The target is an exchange."),
)
_BOUNDS = (
    Parameter(name="--limit", help="How many messages at most.", read=whole),
    Parameter(name="--rate", help="How many messages a second at most.", read=whole),
)
_WANTED = (*_TARGET, *_FILTER, *_BOUNDS)
_REPLAYED = (
    *_TARGET,
    Parameter(name="--routing-key", help="Pattern for routing keys (RE2)."),
    Parameter(name="--header", help="Name of a header."),
    Parameter(name="--header-value", help="What that header reads."),
    *_BOUNDS,
)
_COLUMNS = (
    "id",
    "mode",
    "source_vhost",
    "source",
    "target_vhost",
    "target",
    "state",
    "looked",
    "handed_over",
    "left",
    "reason",
)


def _given(call: Call, *parameters: Parameter) -> dict[str, Any]:
    options = call.options
    found = {one.key: options[one.key] for one in parameters if not one.flag}
    return {key: value for key, value in found.items() if value is not None}


async def _start(call: Call, mode: str) -> str:
    row = await call.ask(
        "transfer.start",
        vhost=call.vhost,
        name=call.options["queue"],
        mode=mode,
        target=call.options["target"],
        target_type="exchange" if call.options["to_exchange"] else "queue",
        **_given(call, *_WANTED),
    )
    return f"Transfer {row['id']} was started; list_transfers shows how far it is"


async def _move(call: Call) -> str:
    return await _start(call, "move")


async def _copy(call: Call) -> str:
    return await _start(call, "copy")


async def _replay(call: Call) -> str:
    options = call.options
    try:
        picked = replay_arguments(
            options["from"], options["to"], options["search"], time.time_ns() // 1_000_000
        )
    except BadWords as error:
        raise CommandError(str(error), USAGE) from None
    row = await call.ask(
        "transfer.replay",
        vhost=call.vhost,
        name=options["queue"],
        target=options["target"],
        target_type="exchange" if options["to_exchange"] else "queue",
        **picked,
        record=options["record"],
        **_given(call, *_REPLAYED),
    )
    for reason in row["reasons"]:
        print(f"Not complete: {output.safe_lines(reason)}", file=sys.stderr)
    return (
        f"Transfer {row['id']} replays {row['total']} messages; list_transfers shows how far it is"
    )


async def _preview(call: Call) -> str:
    found = await call.ask(
        "transfer.preview",
        vhost=call.vhost,
        name=call.options["queue"],
        count=call.options["count"],
        **_given(call, *_FILTER),
    )
    return (
        f"{found['matched']} of the first {found['looked']} messages match; "
        f"{found['ready']} are ready"
    )


for _name, _verb, _run, _help in (
    (
        "move_messages",
        "move",
        _move,
        "Moves the ready messages of a queue to another queue; marks, counts and order stay.",
    ),
    ("copy_messages", "copy", _copy, "Copies the messages of a queue or stream to another queue."),
):
    enter(
        Command(
            name=_name,
            group="queues",
            help=_help,
            examples=(
                f"{_name} jobs.failed jobs --header tenant --value acme --limit 1000",
                f"{_name} jobs archive --target-vhost history --to-exchange --older-than 86400",
            ),
            verb="transfer.start",
            parameters=(
                queue(),
                Parameter(name="target", help="Queue or exchange that gets them."),
                *_WANTED,
            ),
            run=_run,
            says=f"Starting to {_verb} messages of queue '{{queue}}' in vhost '{{vhost}}' ...",
            vhost=True,
        )
    )

enter(
    Command(
        name="replay_messages",
        group="queues",
        help="Hands messages of a stream over once more, to a queue or an exchange, with headers "
        "that say that they are replayed: a range, or what a search finds.",
        examples=(
            "replay_messages orders orders.again --from 1000 --to 1999",
            "replay_messages orders orders.again --from yesterday --rate 500",
            "replay_messages orders orders.again --search 'order_id=4711 since 7D'",
        ),
        verb="transfer.replay",
        parameters=(
            queue(),
            Parameter(name="target", help="Queue or exchange that gets them."),
            Parameter(
                name="--from",
                help="First offset, or a day, a time, 'yesterday' or an age such as 2h.",
                default="",
            ),
            Parameter(name="--to", help="Last offset, or a time in the same way.", default=""),
            Parameter(name="--search", help="Words of search_stream.", default=""),
            Parameter(
                name="--record", flag=True, help="It goes into the history of the target, too."
            ),
            *_REPLAYED,
        ),
        run=_replay,
        says="Replaying messages of stream '{queue}' in vhost '{vhost}' ...",
        vhost=True,
    ),
    Command(
        name="pause_transfer",
        group="queues",
        help="Lets a transfer stay where it is until it is resumed.",
        examples=("pause_transfer 7",),
        verb="transfer.pause",
        parameters=(Parameter(name="id", help="Its number.", read=whole),),
        says="Pausing transfer {id} ...",
    ),
    Command(
        name="resume_transfer",
        group="queues",
        help="Lets a transfer go on that was paused, or gives one that runs another rate.",
        examples=("resume_transfer 7", "resume_transfer 7 --rate 1000"),
        verb="transfer.resume",
        parameters=(
            Parameter(name="id", help="Its number.", read=whole),
            Parameter(name="--rate", help="Messages a second at most, 0 for no limit.", read=whole),
        ),
        says="Resuming transfer {id} ...",
    ),
    Command(
        name="preview_transfer",
        group="queues",
        help="Counts how many of the first messages of a queue a filter takes; changes nothing.",
        examples=("preview_transfer jobs.failed --routing-key '^eu[.]' --count 10000",),
        verb="transfer.preview",
        parameters=(
            queue(),
            *_FILTER,
            Parameter(name="--count", help="How many to look at (1000).", read=whole, default=1000),
        ),
        run=_preview,
        says="Looking at messages of queue '{queue}' in vhost '{vhost}' ...",
        vhost=True,
    ),
    Command(
        name="stop_transfer",
        group="queues",
        help="Stops a transfer; one that is over is taken off the list.",
        examples=("stop_transfer 7",),
        verb="transfer.delete",
        parameters=(Parameter(name="id", help="Its number.", read=whole),),
        says="Stopping transfer {id} ...",
    ),
)


@runs(
    Command(
        name="list_transfers",
        group="queues",
        help="Shows moves, copies and replays, newest first: running ones and those that are over.",
        examples=("list_transfers", "list_transfers --format json"),
        verb="transfer.list",
        says="Listing transfers ...",
    )
)
async def list_transfers(call: Call) -> Rows:
    found = await call.ask("transfer.list")
    return Rows(_COLUMNS, [[row[column] for column in _COLUMNS] for row in found])

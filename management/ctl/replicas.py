"""Commands of rabbitmq-queues and rabbitmq-streams: what is kept where, which is on one node."""

from __future__ import annotations

from typing import Any

from management.ctl.health import check
from management.ctl.objects import readable
from management.ctl.table import (
    DATA,
    UNAVAILABLE,
    Call,
    Command,
    CommandError,
    Parameter,
    Rows,
    queue,
    runs,
    whole,
)

PEEK_MOST = 1000


async def _row(call: Call, kind: str) -> Any:
    """The row of the queue, which has to be of that type. Raises CommandError."""
    row = await call.ask("item", noun="queues", vhost=call.vhost, name=call.options["queue"])
    if row["type"] != kind:
        raise CommandError(
            f"queue '{row['name']}' in vhost '{call.vhost}' is of type {row['type']}, not {kind}",
            DATA,
        )
    return row


@runs(
    Command(
        name="quorum_status",
        group="queues",
        help="Shows the members of a quorum queue: the one node, which is its leader.",
        examples=("quorum_status -p orders jobs",),
        verb="item",
        parameters=(queue(),),
        says="Status of quorum queue {queue} in vhost {vhost} ...",
        vhost=True,
    )
)
async def quorum_status(call: Call) -> Rows:
    row = await _row(call, "quorum")
    columns = ("node_name", "raft_state", "membership", "messages_ready", "messages_unacknowledged")
    return Rows(
        columns,
        [[row["node"], "leader", "voter", row["messages_ready"], row["messages_unacknowledged"]]],
    )


@runs(
    Command(
        name="stream_status",
        group="queues",
        help="Shows the one copy of a stream: its offsets, segments and readers. With --tracking "
        "the offsets that consumers of a name have kept.",
        examples=("stream_status -p orders log", "stream_status log --tracking"),
        verb="item",
        parameters=(
            queue(),
            Parameter(name="--tracking", flag=True, help="Show kept offsets instead."),
        ),
        says="Status of stream {queue} in vhost {vhost} ...",
        vhost=True,
    )
)
async def stream_status(call: Call) -> Rows:
    row = await _row(call, "stream")
    stream = row["stream"]
    if call.options["tracking"]:
        kept = stream["consumer_offsets"]
        rows = [["offset", one["consumer_tag"], one["offset"]] for one in kept]
        return Rows(("type", "reference", "offset"), rows)
    facts = {
        "role": "writer",
        "node": row["node"],
        "first_offset": stream["first_offset"],
        "next_offset": stream["next_offset"],
        "segments": row["segments"],
        "readers": row["consumers"],
    }
    return Rows(tuple(facts), [[*facts.values()]])


@runs(
    Command(
        name="check_if_node_is_mirror_sync_critical",
        group="health",
        help="Fails if stopping the node would take the last synchronised mirror of a queue: there "
        "are no mirrors.",
        examples=("check_if_node_is_mirror_sync_critical",),
        verb="health",
        says="Running check check_if_node_is_mirror_sync_critical ...",
    )
)
async def check_if_node_is_mirror_sync_critical(call: Call) -> str:
    return await check(call, "node-is-mirror-sync-critical")


@runs(
    Command(
        name="rebalance",
        group="queues",
        help="Moves leaders of queues to nodes that have fewer: with one node there is nothing to "
        "move.",
        examples=("rebalance all", "rebalance quorum --vhost-pattern '.*' --queue-pattern '.*'"),
        verb="list",
        parameters=(
            Parameter(
                name="type", help="Of these queues.", choices=("all", "classic", "quorum", "stream")
            ),
            Parameter(name="--vhost-pattern", help="Ignored."),
            Parameter(name="--queue-pattern", help="Ignored."),
        ),
        says="Rebalancing queues ...",
    )
)
async def rebalance(call: Call) -> Rows:
    node = (await call.ask("overview", disable_stats=True))["node"]
    count = (await call.ask("list", noun="queues", page=1, page_size=1))["total_count"]
    return Rows(("node_name", "number_of_queues"), [[node, count]])


@runs(
    Command(
        name="peek",
        group="queues",
        help="Shows the message at a position of a queue, of any type but stream: 1 is delivered "
        "next. Nothing is changed.",
        examples=("peek -p orders jobs 1",),
        verb="queue.peek",
        parameters=(
            queue(),
            Parameter(
                name="position", help=f"1 to {PEEK_MOST}.", read=whole, optional=True, default=1
            ),
        ),
        says="Looking at position {position} of queue '{queue}' in vhost '{vhost}' ...",
        vhost=True,
    )
)
async def peek(call: Call) -> Rows:
    position = call.options["position"]
    if not 1 <= position <= PEEK_MOST:
        raise CommandError(f"a position is 1 to {PEEK_MOST}", DATA)
    found = await call.ask(
        "queue.peek", vhost=call.vhost, name=call.options["queue"], count=position
    )
    if len(found) < position:
        raise CommandError(f"there is no message at position {position}", UNAVAILABLE)
    message = found[-1]
    return Rows(
        ("key", "value"), [[key, readable(value)] for key, value in sorted(message.items())]
    )

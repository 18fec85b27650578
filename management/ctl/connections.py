"""Commands that close connections."""

from __future__ import annotations

import asyncio
from typing import Any

from management.ctl.table import (
    UNAVAILABLE,
    Call,
    Command,
    CommandError,
    Parameter,
    Rows,
    enter,
    queue,
    runs,
    user,
    whole,
)

_REASON = Parameter(
    name="reason", help="A text that clients and the log get.", optional=True, default=""
)
_DEFAULT_REASON = "Closed via ctl"


@runs(
    Command(
        name="close_connection",
        group="connections",
        help="Closes a connection, named as in list_connections.",
        examples=("close_connection '127.0.0.1:51234 -> 127.0.0.1:5672' 'maintenance'",),
        verb="connection.close",
        parameters=(
            Parameter(name="connection", help="Its name.", names="connections"),
            _REASON,
        ),
        says="Closing connection {connection}, reason: {reason}...",
    )
)
async def close_connection(call: Call) -> None:
    reason = call.options["reason"] or _DEFAULT_REASON
    await call.ask("connection.close", name=call.options["connection"], reason=reason)


@runs(
    Command(
        name="close_all_connections",
        group="connections",
        help="Closes the connections of a virtual host, or of all with --global.",
        examples=(
            "close_all_connections -p orders 'maintenance'",
            "close_all_connections --global --limit 100 --per-connection-delay 50 'maintenance'",
        ),
        verb="connection.close",
        parameters=(
            _REASON,
            Parameter(name="--global", flag=True, help="Those of every virtual host."),
            Parameter(
                name="--limit", help="Most connections to close; 0: all.", read=whole, default=0
            ),
            Parameter(
                name="--per-connection-delay",
                help="Milliseconds to wait after each.",
                read=whole,
                default=0,
            ),
        ),
        says="Closing connections, reason: {reason} ...",
        vhost=True,
    )
)
async def close_all_connections(call: Call) -> str:
    everywhere = call.options["global"]
    names = await _names(call, **({} if everywhere else {"vhost": call.vhost}))
    return await _close(call, names[: call.options["limit"] or None])


@runs(
    Command(
        name="close_all_user_connections",
        group="connections",
        help="Closes every connection of a user.",
        examples=("close_all_user_connections ada 'password changed'",),
        verb="connection.close_user",
        parameters=(user(), _REASON),
        says="Closing connections of user {username}, reason: {reason} ...",
    )
)
async def close_all_user_connections(call: Call) -> str:
    answer = await call.ask(
        "connection.close_user",
        user=call.options["username"],
        reason=call.options["reason"] or _DEFAULT_REASON,
    )
    return f"Closed {answer['closed']} connections"


@runs(
    Command(
        name="list_unacked",
        group="connections",
        help="Lists the deliveries of a queue that consumers hold unacknowledged.",
        examples=("list_unacked jobs", "list_unacked jobs --count 10 --format json"),
        verb="queue.unacked",
        parameters=(
            queue(),
            Parameter(name="--count", help="Most rows to show.", read=whole, default=1000),
        ),
        says="Listing unacknowledged deliveries of queue '{queue}' in vhost '{vhost}' ...",
        vhost=True,
    )
)
async def list_unacked(call: Call) -> Rows:
    found = await call.ask(
        "queue.unacked",
        vhost=call.vhost,
        name=call.options["queue"],
        count=call.options["count"],
    )
    columns = ("channel_name", "consumer_tag", "delivery_tag", "unacked_for_seconds")
    return Rows(columns, [[row.get(one) for one in columns] for row in found["items"]])


enter(
    Command(
        name="cancel_consumer",
        group="connections",
        help="Cancels a consumer. What it holds stays with its channel until it is settled.",
        examples=("cancel_consumer '127.0.0.1:51234 -> 127.0.0.1:5672' 1 ctag-1",),
        verb="consumer.cancel",
        parameters=(
            Parameter(name="connection", help="Its connection.", names="connections"),
            Parameter(name="channel", help="Number of its channel.", read=whole),
            Parameter(name="consumer_tag", help="Its tag."),
        ),
        says="Cancelling consumer {consumer_tag} in vhost {vhost} ...",
        vhost=True,
    ),
    Command(
        name="set_channel_prefetch",
        group="connections",
        help="Changes the prefetch of a channel's consumers while they run; 0 is no limit.",
        examples=("set_channel_prefetch '127.0.0.1:51234 -> 127.0.0.1:5672 (1)' 50",),
        verb="channel.prefetch",
        parameters=(
            Parameter(
                name="channel", help="Its name, as in list_channels.", to="name", names="channels"
            ),
            Parameter(name="prefetch", help="Unacknowledged messages at most.", read=whole),
        ),
        says="Setting prefetch of channel {channel} to {prefetch} ...",
    ),
)


async def _names(call: Call, **filters: Any) -> list[str]:
    found = await call.rows("connections", columns=["name", "state"], **filters)
    return [row["name"] for row in found if row["state"] not in ("closing", "closed")]


async def _close(call: Call, names: list[str]) -> str:
    closed = 0
    for name in names:
        try:
            reason = call.options["reason"] or _DEFAULT_REASON
            await call.ask("connection.close", name=name, reason=reason)
        except CommandError as error:
            if error.status != UNAVAILABLE:
                raise
            continue  # its client closed it meanwhile
        closed += 1
        if call.options["per_connection_delay"] > 0:
            await asyncio.sleep(call.options["per_connection_delay"] / 1000)
    return f"Closed {closed} connections"

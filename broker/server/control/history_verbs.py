"""The verb `history`: chart data, from memory and from files."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from broker.schema.control_schema import History
from broker.server.control.lists import find_by_key
from broker.server.control.past import Past
from broker.server.control.requests import Caller, Request, bad_request, handles
from broker.server.pace import Pace

if TYPE_CHECKING:
    from broker.server.app import Broker


@handles("history")
async def history(request: Request[History]) -> Any:
    args = request.args
    to_ms = args.to_ms if args.to_ms is not None else time.time_ns() // 1_000_000
    from_ms = args.from_ms if args.from_ms is not None else to_ms - 900_000
    if from_ms > to_ms:
        raise bad_request("history: from_ms is after to_ms")
    return await history_of(
        request.broker, request.caller, args.what, args.key, from_ms, to_ms, args.series
    )


async def history_of(
    broker: Broker,
    caller: Caller,
    what: str,
    key: list[str],
    from_ms: int,
    to_ms: int,
    series: list[str] | None = None,
) -> dict[str, Any]:
    """Chart data of the node (as far as the caller sees it), a vhost or one object."""
    source = Past(broker)
    span = (from_ms, to_ms, series)
    if what == "overview":
        vhost = key[0] if key else None
        if vhost is None and caller.sight.of_node:
            return await source.of_node(*span)
        parts = [await source.of_vhost(one, *span) for one in caller.vhosts(vhost)]
        return await _summed(parts)
    if what == "vhost":
        if len(key) != 1:
            raise bad_request("a key of vhosts is [name]")
        return await source.of_vhost(caller.vhost(key[0]), *span)
    view, thing = find_by_key(broker, caller, f"{what}s", key)
    return await source.of_object(view.kind, thing, *span)


async def _summed(parts: list[dict[str, Any]]) -> dict[str, Any]:
    if len(parts) == 1:
        return parts[0]
    step = max((part["step_ms"] for part in parts), default=1000)
    parts = [part for part in parts if part["step_ms"] == step]
    times = sorted({at for part in parts for at in part["times"]})
    places = {at: place for place, at in enumerate(times)}
    series: dict[str, list[float | None]] = {}
    pace = Pace()
    for part in parts:
        for name, values in part["series"].items():
            total = series.setdefault(name, [None] * len(times))
            for at, value in zip(part["times"], values, strict=True):
                if value is not None:
                    total[places[at]] = round((total[places[at]] or 0.0) + value, 3)
            await pace()
    summed: dict[str, Any] = {"step_ms": step, "times": times, "series": series}
    begun = [part["begins"] for part in parts if "begins" in part]
    if begun:
        summed["begins"] = max(begun)
        summed["left_out"] = sum(part.get("left_out", 0) for part in parts)
    return summed

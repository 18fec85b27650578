"""Verbs on transfers: moving and copying messages between queues (`replay_verbs` has replays)."""

from __future__ import annotations

from typing import Any

from broker.access.patterns import BadPattern, Pattern
from broker.kernel import clock
from broker.schema.control_schema import (
    TransferDelete,
    TransferList,
    TransferPause,
    TransferPreview,
    TransferReplay,
    TransferResume,
    TransferStart,
)
from broker.schema.errors import NotFound, describe
from broker.server.control.encoding import encode_rows, full_name
from broker.server.control.messaging_verbs import queue_of
from broker.server.control.peek_verbs import look_through
from broker.server.control.requests import Caller, Request, bad_request, handles, not_found

LOOKED_MAX = 10_000
"""Messages that a preview looks at."""

NAME_MAX = 255
VALUE_MAX = 1024
LIMIT_MAX = 2**53
RATE_MAX = 10_000_000
"""Messages a second: more than any transfer reaches."""

_SLICE_NS = 500_000


def transfers_of(request: Request[Any]) -> Any:
    if request.broker.transfers is None:
        raise not_found("this broker moves and copies no messages")
    return request.broker.transfers


def _source(request: Request[Any]) -> tuple[Any, Any]:
    """The vhost and the queue that messages are taken from. Rights are asked first."""
    args, caller = request.args, request.caller
    vhost = caller.vhost(args.vhost)
    name = full_name(vhost.queues, args.name)
    caller.check(vhost.name, "read", "queue", name)
    return vhost, queue_of(vhost, name, caller, use=True)


def filter_of(
    routing_key: str | None, header: str | None, value: str | None, value_key: str = "value"
) -> dict[str, Any]:
    """The filter by routing key and header as it is kept. Raises RequestError that names what is
    wrong."""
    if routing_key is not None:
        try:
            Pattern.sent(routing_key)
        except BadPattern as error:
            raise bad_request(f"routing_key: {error}") from None
    if (header is None) != (value is None):
        raise bad_request(f"a filter by header needs both 'header' and '{value_key}'")
    if header is not None and not 0 < len(header.encode()) <= NAME_MAX:
        raise bad_request(f"header must be a name of 1 to {NAME_MAX} bytes")
    if value is not None and len(value.encode()) > VALUE_MAX:
        raise bad_request(f"{value_key} must have {VALUE_MAX} bytes at most")
    return {"routing_key": routing_key, "header": header, "header_value": value}


def _filter(args: TransferStart | TransferPreview) -> dict[str, Any]:
    """The whole filter as it is kept. Raises RequestError that names what is wrong."""
    found = filter_of(args.routing_key, args.header, args.value)
    for key in ("older_than", "newer_than"):
        seconds = getattr(args, key)
        if seconds is not None and not 0 <= seconds <= LIMIT_MAX // 1000:
            raise bad_request(f"{key} must be a number of seconds, 0 or more")
    if None not in (args.older_than, args.newer_than):
        assert args.older_than is not None and args.newer_than is not None
        if args.older_than >= args.newer_than:
            raise bad_request("older_than must be less than newer_than: no message is both")
    now = clock.now()
    return {
        **found,
        "until": now - args.older_than * 1000 if args.older_than is not None else -1,
        "since": max(0, now - args.newer_than * 1000) if args.newer_than is not None else -1,
    }


def check_target(
    caller: Caller, args: TransferStart | TransferReplay, source: Any
) -> tuple[str, str]:
    """Vhost and name of the target. Raises RequestError, AccessRefused or NotFound."""
    vhost = caller.vhost(args.target_vhost if args.target_vhost is not None else args.vhost)
    kind = args.target_type
    name = full_name(vhost.queues, args.target) if kind == "queue" else args.target
    if not name or (kind == "exchange" and name == "amq.default"):
        raise bad_request(
            "the target has no name: to send messages to a queue, name the queue"
            if kind == "exchange"
            else "the target queue has no name"
        )
    caller.check(vhost.name, "write", kind, name)
    if kind == "queue":
        if queue_of(vhost, name, caller, use=True) is source:
            raise bad_request("source and target are the same queue")
        return vhost.name, name
    exchange = vhost.exchanges.get(name)
    if exchange is None:
        raise NotFound(f"no {describe('exchange', name, vhost.name)}")
    if exchange.internal:
        raise bad_request(f"{describe('exchange', name, vhost.name)} is internal")
    return vhost.name, name


@handles("transfer.start")
async def transfer_start(request: Request[TransferStart]) -> Any:
    args, caller = request.args, request.caller
    _, queue = _source(request)
    target_vhost, target = check_target(caller, args, queue)
    if queue.type == "stream" and args.mode == "move":
        raise bad_request(
            f"queue '{args.name}' is a stream, whose messages stay: use the mode copy"
        )
    transfer = transfers_of(request).begin(
        queue,
        user=caller.user.name if caller.user is not None else None,
        mode=args.mode,
        target_vhost=target_vhost,
        target=target,
        target_type=args.target_type,
        **bounds_of(args),
        **_filter(args),
    )
    return transfer.shown()


def bounds_of(args: TransferStart | TransferReplay) -> dict[str, int]:
    """How many messages are handed over, and how fast. Raises RequestError."""
    found = {}
    for name, most in (("limit", LIMIT_MAX), ("rate", RATE_MAX)):
        value = getattr(args, name)
        if value is not None and not 1 <= value <= most:
            raise bad_request(f"{name} must be 1 or more, {most} at most")
        found[name] = value or 0
    return found


@handles("transfer.preview")
async def transfer_preview(request: Request[TransferPreview]) -> Any:
    args = request.args
    _, queue = _source(request)
    wanted = _filter(args)
    if not 1 <= args.count <= LOOKED_MAX:
        raise bad_request(f"count must be from 1 to {LOOKED_MAX}")
    ready = queue.messages_ready
    preview = transfers_of(request).preview(queue, args.count, **wanted)
    await look_through(lambda: int(preview.go_on(_SLICE_NS)), args.name)
    return {"looked": preview.looked, "matched": preview.matched, "ready": ready}


@handles("transfer.list")
async def transfer_list(request: Request[TransferList]) -> Any:
    args, caller = request.args, request.caller
    transfers = transfers_of(request)
    if args.vhost is not None:
        caller.vhost(args.vhost)
    name = args.name
    if args.vhost is not None and name is not None:
        name = full_name(caller.vhost(args.vhost).queues, name)
    return await encode_rows(
        each.shown()
        for each in transfers.rows()
        if _is_seen(caller, each)
        and (args.vhost is None or each.source_vhost == args.vhost)
        and (name is None or each.source == name)
    )


def _is_seen(caller: Caller, transfer: Any) -> bool:
    sight = caller.sight
    if caller.user is None or transfer.user == caller.user.name:
        return True
    return sight.of_vhost(transfer.source_vhost) and sight.of_vhost(transfer.target_vhost)


def _own(request: Request[Any]) -> tuple[Any, Any]:
    """All transfers, and the one that is asked for, of which the caller must be the owner."""
    caller, transfers = request.caller, transfers_of(request)
    transfer = transfers.get(request.args.id)
    if transfer is None or not _is_seen(caller, transfer):
        raise not_found("no such transfer")
    caller.require_owner(transfer.user)
    return transfers, transfer


@handles("transfer.delete")
async def transfer_delete(request: Request[TransferDelete]) -> Any:
    transfers, transfer = _own(request)
    transfers.delete(transfer, request.caller.name)
    return {"state": transfer.state}


def _check_goes_on(transfer: Any) -> None:
    if transfer.is_over:
        raise bad_request(f"transfer {transfer.id} is {transfer.state} and does not go on")


@handles("transfer.pause")
async def transfer_pause(request: Request[TransferPause]) -> Any:
    transfers, transfer = _own(request)
    _check_goes_on(transfer)
    transfers.pause(transfer, request.caller.name)
    return {"state": transfer.state}


@handles("transfer.resume")
async def transfer_resume(request: Request[TransferResume]) -> Any:
    transfers, transfer = _own(request)
    _check_goes_on(transfer)
    rate = request.args.rate
    if rate is not None and not 0 <= rate <= RATE_MAX:
        raise bad_request(f"rate must be from 0, which is no limit, to {RATE_MAX}")
    transfers.resume(transfer, rate, request.caller.name)
    return {"state": transfer.state}

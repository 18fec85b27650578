"""Verbs of signing in: passwords, sessions, tickets, and the count of attempts."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from typing import Any

from broker.access import Refused
from broker.access.login import TICKET_S
from broker.access.passwords import rabbit_hash
from broker.schema.control_schema import (
    AuthAttempts,
    AuthAttemptsReset,
    AuthAttemptsTrack,
    Authenticate,
    AuthenticateLeave,
    PasswordHash,
    SessionEnd,
    SessionValid,
    TicketIssue,
)
from broker.server.control.requests import Request, RequestError, bad_request, handles


@handles("authenticate")
async def authenticate(request: Request[Authenticate]) -> Any:
    args = request.args
    logins = request.session.logins
    task = asyncio.current_task()
    if args.login is not None and task is not None:
        logins[args.login] = task
    try:
        user = await request.broker.logins.check(
            args.user, args.password, args.peer, args.protocol, again=args.again
        )
    finally:
        if args.login is not None:
            logins.pop(args.login, None)
        # One that is cancelled keeps the error, and so this frame.
        task = None
    if isinstance(user, Refused):
        raise RequestError(user.error, user.reason, user.status)
    return {"name": user.name, "tags": list(user.tags), "epoch": user.epoch}


@handles("authenticate.leave")
async def authenticate_leave(request: Request[AuthenticateLeave]) -> Any:
    task = request.session.logins.pop(request.args.login, None)
    if task is not None:
        task.cancel()
    return {}


@handles("session.valid")
async def session_valid(request: Request[SessionValid]) -> Any:
    args = request.args
    user = request.broker.access.session_stands(args.user, args.epoch, args.session_id)
    return {"valid": user is not None, "tags": list(user.tags) if user is not None else []}


@handles("session.end")
async def session_end(request: Request[SessionEnd]) -> Any:
    args = request.args
    request.broker.access.end_session(args.session_id, args.expires_at)
    request.broker.emit("session.ended", {"session_id": args.session_id})
    return {}


@handles("ticket.issue")
async def ticket_issue(request: Request[TicketIssue]) -> Any:
    if request.caller.user is None:
        raise bad_request("ticket.issue: a ticket is for a user; name one in as_user")
    ticket = request.broker.access.issue_ticket(request.caller.name, request.args.session_id)
    expires_at = time.time_ns() // 1_000_000 + int(TICKET_S * 1000)
    return {"ticket": ticket, "expires_at": expires_at}


@handles("password.hash")
async def password_hash(request: Request[PasswordHash]) -> Any:
    return {"result": rabbit_hash(request.args.password)}


@handles("auth.attempts")
async def auth_attempts(request: Request[AuthAttempts]) -> Any:
    counted: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for (protocol, user, peer, ok), count in request.broker.access.attempts.items():
        source = (protocol, user, peer) if request.args.by_source else (protocol, "", "")
        counted[source][ok] += count
    rows = []
    for (protocol, user, peer), (failed, succeeded) in counted.items():
        row: dict[str, Any] = {
            "protocol": protocol,
            "auth_attempts": failed + succeeded,
            "auth_attempts_failed": failed,
            "auth_attempts_succeeded": succeeded,
        }
        if request.args.by_source:
            row |= {"username": user, "remote_address": peer}
        rows.append(row)
    return rows


@handles("auth.attempts.reset")
async def auth_attempts_reset(request: Request[AuthAttemptsReset]) -> Any:
    request.broker.access.attempts.clear()
    return {}


@handles("auth.attempts.track")
async def auth_attempts_track(request: Request[AuthAttemptsTrack]) -> Any:
    request.broker.access.counts_sources = request.args.sources
    return {}

"""Verbs that switch off and on that clients are served, and that change settings until the next
start."""

from __future__ import annotations

from typing import Any

from broker.schema.control_schema import (
    AppStart,
    AppStop,
    ListenersResume,
    ListenersSuspend,
    NodeDrain,
    NodeRevive,
    SettingPut,
)
from broker.server.control.requests import Request, bad_request, handles
from broker.server.service import NotNow


@handles("listeners.suspend")
async def listeners_suspend(request: Request[ListenersSuspend]) -> Any:
    return {"changed": await request.broker.service.suspend()}


@handles("listeners.resume")
async def listeners_resume(request: Request[ListenersResume]) -> Any:
    try:
        return {"changed": await request.broker.service.resume()}
    except NotNow as error:
        raise bad_request(str(error)) from None


@handles("node.drain")
async def node_drain(request: Request[NodeDrain]) -> Any:
    return {"closed": await request.broker.service.drain()}


@handles("node.revive")
async def node_revive(request: Request[NodeRevive]) -> Any:
    try:
        return {"changed": await request.broker.service.revive()}
    except NotNow as error:
        raise bad_request(str(error)) from None


@handles("app.stop")
async def app_stop(request: Request[AppStop]) -> Any:
    return {"closed": await request.broker.service.stop()}


@handles("app.start")
async def app_start(request: Request[AppStart]) -> Any:
    try:
        return {"changed": await request.broker.service.start()}
    except NotNow as error:
        raise bad_request(str(error)) from None


@handles("setting.put")
async def setting_put(request: Request[SettingPut]) -> Any:
    args, overrides = request.args, request.broker.overrides
    try:
        overrides.put(args.name, args.value)
    except ValueError as error:
        raise bad_request(f"{args.name}: '{args.value[:100]}' is not {error}") from None
    return {"name": args.name, **overrides.rows()[args.name]}

"""Verbs on shovels, and those by which the process that runs them follows their definitions."""

from __future__ import annotations

from typing import Any

import msgspec

from broker.access import BadSetting, Parameter
from broker.access.parameters import SHOVEL
from broker.schema.control_schema import (
    BridgesFollow,
    BridgesLogin,
    BridgesPlace,
    BridgesReport,
    BridgesSource,
    BridgesTested,
    ShovelList,
    ShovelPause,
    ShovelRestart,
    ShovelResume,
    ShovelTest,
)
from broker.server.control.bridging import NEWS_AT_ONCE, changed, tried
from broker.server.control.encoding import encode_rows
from broker.server.control.requests import (
    Request,
    bad_request,
    handles,
    not_authorised,
    not_found,
)


def _shovels(request: Request[Any]) -> Any:
    if request.broker.shovels is None:
        raise not_found("this broker runs no shovels")
    return request.broker.shovels


@handles("shovel.list")
async def shovel_list(request: Request[ShovelList]) -> Any:
    args, caller = request.args, request.caller
    if not (caller.sight.has("policymaker") or caller.sight.has("monitoring")):
        raise not_authorised("Not monitor user")
    if args.vhost is not None:
        caller.vhost(args.vhost)

    def fits(vhost: str, name: str) -> bool:
        return (
            caller.sight.of_vhost(vhost)
            and (args.vhost is None or vhost == args.vhost)
            and (args.name is None or name == args.name)
        )

    return await encode_rows(_shovels(request).rows(fits))


def _named(request: Request[ShovelPause] | Request[ShovelResume] | Request[ShovelRestart]) -> Any:
    shovel = _shovels(request).get(request.args.vhost, request.args.name)
    if shovel is None:
        raise not_found("Not Found")
    return shovel


@handles("shovel.pause")
async def shovel_pause(request: Request[ShovelPause]) -> Any:
    _named(request)
    request.broker.access.parameters.pause(request.args.vhost, request.args.name, True)
    return {"state": "paused"}


@handles("shovel.resume")
async def shovel_resume(request: Request[ShovelResume]) -> Any:
    _named(request)
    request.broker.access.parameters.pause(request.args.vhost, request.args.name, False)
    return {"state": "starting"}


@handles("shovel.restart")
async def shovel_restart(request: Request[ShovelRestart]) -> Any:
    shovel = _named(request)
    if shovel.parameter.paused:
        raise bad_request(f"shovel '{request.args.name}' is paused: resume it")
    _shovels(request).restart(shovel)
    return {"state": "starting"}


@handles("shovel.test")
async def shovel_test(request: Request[ShovelTest]) -> Any:
    args, shovels = request.args, _shovels(request)
    parameter = Parameter(SHOVEL, args.vhost, args.name, args.value)
    try:
        value = shovels.checked(parameter, request.caller.name).value
    except BadSetting as error:
        raise bad_request(str(error)) from None
    return await tried(
        shovels,
        lambda answer: shovels.ask_test(args.vhost, value, request.caller.name, answer),
    )


# For the process that runs them.


@handles("bridges.follow")
async def bridges_follow(request: Request[BridgesFollow]) -> Any:
    shovels, args = _shovels(request), request.args
    if shovels.away not in request.session.at_end:
        request.session.at_end.append(shovels.away)
    news = shovels.news
    if args.version == news.version and not await changed(news, args.wait_s):
        shovels.look_at_owners()
    return shovels.told(args.version, NEWS_AT_ONCE)


@handles("bridges.report")
async def bridges_report(request: Request[BridgesReport]) -> Any:
    if _shovels(request).reported(request.args.shovels):
        await request.broker.synced()
    return {}


@handles("bridges.tested")
async def bridges_tested(request: Request[BridgesTested]) -> Any:
    steps = [msgspec.to_builtins(step) for step in request.args.steps]
    _shovels(request).tested(request.args.id, steps)
    return {}


@handles("bridges.login")
async def bridges_login(request: Request[BridgesLogin]) -> Any:
    try:
        user = _shovels(request).login(request.args.owner, request.args.vhost)
    except BadSetting as error:
        raise not_authorised(str(error)) from None
    return {"user": user, "ticket": request.broker.access.issue_ticket(user)}


@handles("bridges.source")
async def bridges_source(request: Request[BridgesSource]) -> Any:
    vhost = request.broker.vhosts.get(request.args.vhost)
    queue = vhost.queues.get(request.args.queue) if vhost is not None else None
    if vhost is None or queue is None:
        return {"dead_letter_exchange": None, "stream": None}
    exchange = queue.limits.dead_letter_exchange if queue.limits is not None else None
    return {
        "dead_letter_exchange": exchange if exchange in vhost.exchanges else None,
        "stream": queue.incarnation if queue.type == "stream" else None,
    }


@handles("bridges.place")
async def bridges_place(request: Request[BridgesPlace]) -> Any:
    args = request.args
    if not _shovels(request).keep(args):
        raise not_found("the shovel was deleted")
    await request.broker.synced()
    return {}

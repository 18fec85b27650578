"""Verbs on the links of federation, and those by which the process that runs them follows them."""

from __future__ import annotations

from typing import Any

import msgspec

from broker.access import BadSetting, Parameter
from broker.schema.control_schema import (
    FederationBindings,
    FederationFollow,
    FederationList,
    FederationLogin,
    FederationReport,
    FederationRestart,
    FederationTest,
    FederationTested,
    FederationUpstreams,
)
from broker.schema.upstream_keys import UPSTREAM
from broker.server.control.bridging import NEWS_AT_ONCE, changed, tried
from broker.server.control.encoding import encode_rows
from broker.server.control.requests import (
    Request,
    bad_request,
    handles,
    not_authorised,
    not_found,
)

BINDINGS_AT_ONCE = 500


def _federation(request: Request[Any]) -> Any:
    if request.broker.federation is None:
        raise not_found("this broker runs no federation")
    return request.broker.federation


def _check_sight(request: Request[FederationList] | Request[FederationUpstreams]) -> None:
    caller, vhost = request.caller, request.args.vhost
    if not (caller.sight.has("policymaker") or caller.sight.has("monitoring")):
        raise not_authorised("Not monitor user")
    if vhost is not None:
        caller.vhost(vhost)


@handles("federation.upstreams")
async def federation_upstreams(request: Request[FederationUpstreams]) -> Any:
    _check_sight(request)
    args, caller = request.args, request.caller
    return await encode_rows(
        row
        for row in _federation(request).upstreams()
        if caller.sight.of_vhost(row["vhost"])
        and (args.vhost is None or row["vhost"] == args.vhost)
        and (args.name is None or row["name"] == args.name)
    )


@handles("federation.list")
async def federation_list(request: Request[FederationList]) -> Any:
    _check_sight(request)
    args, caller = request.args, request.caller
    return await encode_rows(
        row
        for row in _federation(request).rows()
        if caller.sight.of_vhost(row["vhost"])
        and (args.vhost is None or row["vhost"] == args.vhost)
        and (args.id is None or row["id"] == args.id)
        and not (args.down and row["status"] in ("running", "starting"))
    )


@handles("federation.restart")
async def federation_restart(request: Request[FederationRestart]) -> Any:
    federation = _federation(request)
    link = federation.get(request.args.vhost, request.args.id)
    if link is None:
        raise not_found("Not Found")
    federation.restart(link)
    return {"state": "starting"}


@handles("federation.test")
async def federation_test(request: Request[FederationTest]) -> Any:
    args, federation = request.args, _federation(request)
    parameter = Parameter(UPSTREAM, args.vhost, args.name, args.value)
    try:
        parameter = federation.checked(parameter, request.caller.name)
    except BadSetting as error:
        raise bad_request(str(error)) from None
    return await tried(federation, lambda answer: federation.ask_test(parameter, answer))


# For the process that runs them.


@handles("federation.follow")
async def federation_follow(request: Request[FederationFollow]) -> Any:
    federation, args = _federation(request), request.args
    news = federation.news
    if federation.away not in request.session.at_end:
        request.session.at_end.append(federation.away)
    if args.version == news.version and not await changed(news, args.wait_s):
        federation.look_at_owners()
    return federation.told(args.version, NEWS_AT_ONCE)


@handles("federation.bindings")
async def federation_bindings(request: Request[FederationBindings]) -> Any:
    args = request.args
    try:
        return _federation(request).bindings_since(
            args.vhost, args.exchange, args.serial, BINDINGS_AT_ONCE
        )
    except KeyError:
        raise not_found("Not Found") from None


@handles("federation.report")
async def federation_report(request: Request[FederationReport]) -> Any:
    _federation(request).reported(request.args.links)
    return {}


@handles("federation.tested")
async def federation_tested(request: Request[FederationTested]) -> Any:
    steps = [msgspec.to_builtins(step) for step in request.args.steps]
    _federation(request).tested(request.args.id, steps)
    return {}


@handles("federation.login")
async def federation_login(request: Request[FederationLogin]) -> Any:
    try:
        user = _federation(request).login(request.args.owner, request.args.vhost)
    except BadSetting as error:
        raise not_authorised(str(error)) from None
    return {"user": user, "ticket": request.broker.access.issue_ticket(user)}

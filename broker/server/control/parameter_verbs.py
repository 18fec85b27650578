"""Verbs of parameters: limits of vhosts, shovels, upstreams of federation and their sets."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from broker.access import BadSetting, Parameter
from broker.access.parameters import LIMITS, SHOVEL, STORED, limits_fault
from broker.access.records import VHOST_LIMITS
from broker.schema.control_schema import (
    GlobalParameterDelete,
    GlobalParameterPut,
    ParameterDelete,
    ParameterPut,
)
from broker.server.control.requests import (
    Request,
    RequestError,
    bad_request,
    handles,
    not_authorised,
    not_found,
)

if TYPE_CHECKING:
    from broker.server.app import Broker

log = logging.getLogger("leveret.parameters")


@handles("parameter.put")
async def parameter_put(request: Request[ParameterPut]) -> Any:
    parameters, args = request.broker.access.parameters, request.args
    _check_component(request, args.component, args.name)
    if args.component == LIMITS:
        created = args.vhost not in parameters.vhost_limits
        put_vhost_limits(request.broker, args.vhost, args.value)
        return {"created": created}
    parameter = Parameter(args.component, args.vhost, args.name, args.value)
    bridge = _bridge(request.broker, args.component)
    try:
        if bridge is not None:
            parameter = bridge.checked(parameter, request.caller.name)
        created = parameters.put(parameter)
    except BadSetting as error:
        raise _invalid(str(error)) from None
    log.info(
        "%s '%s' of vhost '%s' was written by user '%s'%s",
        args.component,
        args.name,
        args.vhost,
        request.caller.name,
        "" if bridge is not None else "; this broker does not run it",
    )
    return {"created": created}


def _bridge(broker: Broker, component: str) -> Any:
    """The feature that runs what a component defines; None if it is not there."""
    return broker.shovels if component == SHOVEL else broker.federation


@handles("parameter.delete")
async def parameter_delete(request: Request[ParameterDelete]) -> Any:
    parameters, args = request.broker.access.parameters, request.args
    if args.component != LIMITS:
        try:
            parameters.delete(args.component, args.vhost, args.name)
        except KeyError:
            _check_component(request, args.component, args.name)
            raise not_found("Not Found") from None
        return {}
    _check_component(request, args.component, args.name)
    if args.vhost not in parameters.vhost_limits:
        raise not_found("Not Found")
    for name in VHOST_LIMITS:
        parameters.put_vhost_limit(args.vhost, name, None)
    return {}


@handles("global-parameter.put")
async def global_parameter_put(request: Request[GlobalParameterPut]) -> Any:
    if request.args.name == "cluster_name":
        request.caller.require("administrator")
    try:
        created = request.broker.access.parameters.put_global(request.args.name, request.args.value)
    except BadSetting as error:
        raise _invalid(str(error)) from None
    return {"created": created}


@handles("global-parameter.delete")
async def global_parameter_delete(request: Request[GlobalParameterDelete]) -> Any:
    if request.args.name == "cluster_name":
        request.caller.require("administrator")
    try:
        request.broker.access.parameters.delete_global(request.args.name)
    except KeyError:
        raise not_found("Not Found") from None
    return {}


def _check_component(
    request: Request[ParameterPut] | Request[ParameterDelete], component: str, name: str
) -> None:
    if component == "policy":
        raise bad_request("policies may not be set using this method")
    if component == "operator_policy":
        raise bad_request("operator policies may not be set using this method")
    if component in STORED:
        return
    if component != LIMITS:
        raise _invalid(f"component {component[:100]} not found")
    if name != "limits":
        raise _invalid(f'vhost-limits are one parameter named "limits", not "{name[:100]}"')
    if not request.caller.sight.has("administrator"):
        # They bound what a policymaker's own applications may do.
        raise not_authorised("Not administrator user")


def put_vhost_limits(broker: Broker, vhost: str, value: Any) -> None:
    """Sets the limits of a vhost from a parameter's value; those it leaves out are taken away.
    Raises RequestError 400."""
    fault = limits_fault(value)
    if fault is not None:
        raise _invalid(fault)
    for name in VHOST_LIMITS:
        broker.access.parameters.put_vhost_limit(vhost, name, value.get(name))


def _invalid(reason: str) -> RequestError:
    return bad_request(f"Validation failed\n\n{reason}\n")

"""Parameters and policies. Global parameters exist; policies are listed, but none can be set."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Schema

from api import unbuilt
from api.ask import ask, done, put_answer
from api.listing import ListQuery, row, rows
from api.shapes import Text

router = Router(tags=["Policies and parameters"])


class GlobalParameter(Schema):
    value: Any
    name: Text | None = None


@router.get("/policies")
async def list_policies(request: HttpRequest, query: Query[ListQuery]) -> Any:
    """Policies of all vhosts the caller may use."""
    return await rows(request, "policies", query)


@router.get("/policies/{seg:vhost}")
async def list_policies_of(request: HttpRequest, vhost: str, query: Query[ListQuery]) -> Any:
    """Policies of one vhost."""
    return await rows(request, "policies", query, vhost=vhost)


@router.get("/policies/{seg:vhost}/{seg:name}")
async def get_policy(request: HttpRequest, vhost: str, name: str) -> Any:
    """One policy."""
    return await row(request, "policies", vhost=vhost, name=name)


@router.api_operation(["PUT", "DELETE"], "/policies/{seg:vhost}/{seg:name}")
async def change_policy(request: HttpRequest, vhost: str, name: str) -> Any:
    """Not built: policies cannot be set yet."""
    await unbuilt.refuse(request, "policies")


@router.get("/operator-policies")
async def list_operator_policies(request: HttpRequest, query: Query[ListQuery]) -> Any:
    """Operator policies of all vhosts the caller may use."""
    return await rows(request, "operator-policies", query)


@router.get("/operator-policies/{seg:vhost}")
async def list_operator_policies_of(
    request: HttpRequest, vhost: str, query: Query[ListQuery]
) -> Any:
    """Operator policies of one vhost."""
    return await rows(request, "operator-policies", query, vhost=vhost)


@router.get("/operator-policies/{seg:vhost}/{seg:name}")
async def get_operator_policy(request: HttpRequest, vhost: str, name: str) -> Any:
    """One operator policy."""
    return await row(request, "operator-policies", vhost=vhost, name=name)


@router.api_operation(["PUT", "DELETE"], "/operator-policies/{seg:vhost}/{seg:name}")
async def change_operator_policy(request: HttpRequest, vhost: str, name: str) -> Any:
    """Not built: operator policies cannot be set yet."""
    await unbuilt.refuse(request, "operator policies")


@router.get("/parameters")
async def list_parameters(request: HttpRequest, query: Query[ListQuery]) -> Any:
    """Parameters of all components."""
    return await rows(request, "parameters", query)


@router.get("/parameters/{seg:component}")
async def list_parameters_of(request: HttpRequest, component: str, query: Query[ListQuery]) -> Any:
    """Parameters of one component."""
    return await rows(request, "parameters", query, component=component)


@router.get("/parameters/{seg:component}/{seg:vhost}")
async def list_parameters_of_vhost(
    request: HttpRequest, component: str, vhost: str, query: Query[ListQuery]
) -> Any:
    """Parameters of one component in one vhost."""
    return await rows(request, "parameters", query, component=component, vhost=vhost)


@router.get("/parameters/{seg:component}/{seg:vhost}/{seg:name}")
async def get_parameter(request: HttpRequest, component: str, vhost: str, name: str) -> Any:
    """One parameter."""
    return await row(request, "parameters", component=component, vhost=vhost, name=name)


@router.api_operation(["PUT", "DELETE"], "/parameters/{seg:component}/{seg:vhost}/{seg:name}")
async def change_parameter(request: HttpRequest, component: str, vhost: str, name: str) -> Any:
    """Not built: parameters, and with them shovels and federation, cannot be set yet."""
    await unbuilt.refuse(request, f"the component {component:.100}")


@router.get("/global-parameters")
async def list_global_parameters(request: HttpRequest, query: Query[ListQuery]) -> Any:
    """Global parameters, such as the cluster's name."""
    return await rows(request, "global-parameters", query)


@router.get("/global-parameters/{seg:name}")
async def get_global_parameter(request: HttpRequest, name: str) -> Any:
    """One global parameter."""
    return await row(request, "global-parameters", name=name)


@router.put("/global-parameters/{seg:name}", response={201: None, 204: None})
async def put_global_parameter(
    request: HttpRequest, name: str, body: GlobalParameter
) -> HttpResponse:
    """Set a global parameter."""
    return put_answer(await ask(request, "global-parameter.put", name=name, value=body.value))


@router.delete("/global-parameters/{seg:name}", response={204: None})
async def delete_global_parameter(request: HttpRequest, name: str) -> HttpResponse:
    """Remove a global parameter."""
    await ask(request, "global-parameter.delete", name=name)
    return done()

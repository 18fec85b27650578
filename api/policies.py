"""Policies, operator policies, and parameters of components and of the node."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Schema
from pydantic import Field

from api.ask import ask, done, put_answer
from api.identity import ADMINISTRATOR, POLICYMAKER
from api.listing import ListQuery, row, rows
from api.shapes import Number, Object, Text

router = Router(tags=["Policies and parameters"])


class Policy(Schema):
    pattern: Text
    definition: Object
    priority: Number | None = None
    apply_to: Text | None = Field(None, alias="apply-to")

    def arguments(self) -> dict[str, Any]:
        """Arguments of the broker's verbs: what is null or left out is RabbitMQ's default."""
        return {
            "pattern": self.pattern,
            "definition": self.definition,
            "priority": self.priority or 0,
            "apply_to": self.apply_to or "all",
        }


class Parameter(Schema):
    value: Any


class GlobalParameter(Schema):
    value: Any
    name: Text | None = None


class Secrets(Schema):
    """Whether passwords in URIs and keys are shown; for administrators."""

    secrets: str | None = None

    @property
    def shown(self) -> bool:
        return self.secrets == "true"


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


@router.put("/policies/{seg:vhost}/{seg:name}", response={201: None, 204: None}, auth=POLICYMAKER)
async def put_policy(request: HttpRequest, vhost: str, name: str, body: Policy) -> HttpResponse:
    """Set a policy. The answer comes when it has reached all queues and exchanges it concerns."""
    given = body.arguments()
    return put_answer(await ask(request, "policy.put", vhost=vhost, name=name, **given))


@router.delete("/policies/{seg:vhost}/{seg:name}", response={204: None}, auth=POLICYMAKER)
async def delete_policy(request: HttpRequest, vhost: str, name: str) -> HttpResponse:
    """Remove a policy."""
    await ask(request, "policy.delete", vhost=vhost, name=name)
    return done()


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


@router.put(
    "/operator-policies/{seg:vhost}/{seg:name}", response={201: None, 204: None}, auth=ADMINISTRATOR
)
async def put_operator_policy(
    request: HttpRequest, vhost: str, name: str, body: Policy
) -> HttpResponse:
    """Set an operator policy: bounds for what policies and declarations set."""
    given = body.arguments()
    return put_answer(await ask(request, "operator-policy.put", vhost=vhost, name=name, **given))


@router.delete(
    "/operator-policies/{seg:vhost}/{seg:name}", response={204: None}, auth=ADMINISTRATOR
)
async def delete_operator_policy(request: HttpRequest, vhost: str, name: str) -> HttpResponse:
    """Remove an operator policy."""
    await ask(request, "operator-policy.delete", vhost=vhost, name=name)
    return done()


@router.get("/parameters")
async def list_parameters(
    request: HttpRequest, query: Query[ListQuery], secret: Query[Secrets]
) -> Any:
    """Parameters of all components."""
    return await rows(request, "parameters", query, secrets=secret.shown or None)


@router.get("/parameters/{seg:component}")
async def list_parameters_of(
    request: HttpRequest, component: str, query: Query[ListQuery], secret: Query[Secrets]
) -> Any:
    """Parameters of one component."""
    return await rows(
        request, "parameters", query, secrets=secret.shown or None, component=component
    )


@router.get("/parameters/{seg:component}/{seg:vhost}")
async def list_parameters_of_vhost(
    request: HttpRequest,
    component: str,
    vhost: str,
    query: Query[ListQuery],
    secret: Query[Secrets],
) -> Any:
    """Parameters of one component in one vhost."""
    return await rows(
        request, "parameters", query, secrets=secret.shown or None, component=component, vhost=vhost
    )


@router.get("/parameters/{seg:component}/{seg:vhost}/{seg:name}")
async def get_parameter(
    request: HttpRequest, component: str, vhost: str, name: str, secret: Query[Secrets]
) -> Any:
    """One parameter."""
    named = {"component": component, "vhost": vhost, "name": name}
    return await row(request, "parameters", **named, secrets=secret.shown or None)


@router.put(
    "/parameters/{seg:component}/{seg:vhost}/{seg:name}",
    response={201: None, 204: None},
    auth=POLICYMAKER,
)
async def put_parameter(
    request: HttpRequest, component: str, vhost: str, name: str, body: Parameter
) -> HttpResponse:
    """Set a parameter: `limits` of `vhost-limits`; or a `shovel`, a `federation-upstream` or a
    `federation-upstream-set`, which run in the name of the caller."""
    given = {"component": component, "vhost": vhost, "name": name, "value": body.value}
    return put_answer(await ask(request, "parameter.put", **given))


@router.delete(
    "/parameters/{seg:component}/{seg:vhost}/{seg:name}", response={204: None}, auth=POLICYMAKER
)
async def delete_parameter(
    request: HttpRequest, component: str, vhost: str, name: str
) -> HttpResponse:
    """Remove a parameter."""
    await ask(request, "parameter.delete", component=component, vhost=vhost, name=name)
    return done()


@router.get("/global-parameters")
async def list_global_parameters(
    request: HttpRequest, query: Query[ListQuery], secret: Query[Secrets]
) -> Any:
    """Global parameters, such as the cluster's name."""
    return await rows(request, "global-parameters", query, secrets=secret.shown or None)


@router.get("/global-parameters/{seg:name}")
async def get_global_parameter(request: HttpRequest, name: str, secret: Query[Secrets]) -> Any:
    """One global parameter."""
    return await row(request, "global-parameters", name=name, secrets=secret.shown or None)


@router.put("/global-parameters/{seg:name}", response={201: None, 204: None}, auth=POLICYMAKER)
async def put_global_parameter(
    request: HttpRequest, name: str, body: GlobalParameter
) -> HttpResponse:
    """Set a global parameter."""
    return put_answer(await ask(request, "global-parameter.put", name=name, value=body.value))


@router.delete("/global-parameters/{seg:name}", response={204: None}, auth=POLICYMAKER)
async def delete_global_parameter(request: HttpRequest, name: str) -> HttpResponse:
    """Remove a global parameter."""
    await ask(request, "global-parameter.delete", name=name)
    return done()

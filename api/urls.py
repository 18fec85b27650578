"""The API's paths, below `/api/`: one router per noun, then 404 in JSON for everything else."""

from django.http import HttpRequest, HttpResponseBase
from django.urls import path, re_path
from django.views.decorators.csrf import csrf_exempt

from api import (
    bindings,
    connections,
    definitions,
    exchanges,
    federation,
    health,
    history,
    logs,
    nodes,
    overview,
    permissions,
    policies,
    queues,
    reports,
    shovels,
    streams,
    tiers,
    traces,
    transfers,
    users,
    vhosts,
)
from api.service import api, not_found

for module in (
    overview,
    nodes,
    vhosts,
    users,
    permissions,
    exchanges,
    queues,
    streams,
    history,
    transfers,
    bindings,
    connections,
    policies,
    shovels,
    federation,
    tiers,
    definitions,
    health,
    logs,
    traces,
    reports,
):
    api.add_router("", module.router)


@csrf_exempt
async def nothing_here(request: HttpRequest) -> HttpResponseBase:
    return not_found(request)


urlpatterns = [path("", nothing_here), path("", api.urls), re_path("", nothing_here)]

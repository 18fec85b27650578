"""The node at a glance, and what clients ask first: who am I, what is this."""

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from ninja import Query, Router, Schema

from api.ask import ask, done, header_text
from api.identity import ADMINISTRATOR
from api.listing import SampleQuery
from api.shapes import Text
from broker.schema.control_schema import RABBITMQ_VERSION

router = Router(tags=["Overview"])


class ClusterName(Schema):
    name: Text


@router.get("/overview")
async def overview(request: HttpRequest, query: Query[SampleQuery]) -> Any:
    """Versions, totals, rates and listeners; the header `X-Vhost` narrows it to one vhost."""
    vhost = header_text(request, "X-Vhost") or None
    answer = await ask(request, "overview", vhost=vhost, **query.of_node())
    if query.disable_stats != "true" and not answer.get("contexts"):
        # Where this API is served, the broker does not know.
        address, port = request.scope["server"]
        context = {"description": "Leveret Management", "path": "/", "ip": address, "port": port}
        answer["contexts"] = [{"node": answer["node"], **context}]
    return answer


class ProblemsQuery(Schema):
    """Page of the list of problems."""

    page: int = 1
    page_size: int = 100


@router.get("/problems")
async def problems(request: HttpRequest, query: Query[ProblemsQuery]) -> Any:
    """What needs attention, the heaviest first; the header `X-Vhost` narrows it to one vhost."""
    vhost = header_text(request, "X-Vhost") or None
    wanted = {"page": query.page, "page_size": query.page_size}
    return await ask(request, "problems", vhost=vhost, **wanted)


@router.get("/whoami")
async def whoami(request: HttpRequest) -> Any:
    """The calling user's name and tags."""
    return await ask(request, "whoami")


@router.get("/cluster-name")
async def cluster_name(request: HttpRequest) -> Any:
    """The name of this appliance."""
    return {"name": (await ask(request, "overview"))["cluster_name"]}


@router.put("/cluster-name", response={204: None}, auth=ADMINISTRATOR)
async def name_cluster(request: HttpRequest, body: ClusterName) -> HttpResponse:
    """Name this appliance; administrators only."""
    await ask(request, "global-parameter.put", name="cluster_name", value=body.name)
    return done()


@router.get("/extensions")
async def extensions(request: HttpRequest) -> Any:
    """Plugins of the management pages: there are none."""
    await ask(request, "whoami")
    return []


@router.get("/feature-flags")
async def feature_flags(request: HttpRequest) -> Any:
    """RabbitMQ's feature flags, and which of them stand for something that Leveret does."""
    return await ask(request, "feature-flags")


@router.put("/feature-flags/{seg:name}/enable", response={204: None}, auth=ADMINISTRATOR)
async def enable_feature_flag(request: HttpRequest, name: str) -> HttpResponse:
    """Nothing for a flag that is enabled; 400 for one that is not there."""
    await ask(request, "feature-flag.enable", name=name)
    return done()


@router.delete("/reset", response={204: None}, auth=ADMINISTRATOR)
async def reset(request: HttpRequest) -> HttpResponse:
    """Start the totals and histories of the node and its vhosts anew."""
    await ask(request, "statistics.reset")
    return done()


@router.delete("/reset/{seg:node}", response={204: None}, auth=ADMINISTRATOR)
async def reset_node(request: HttpRequest, node: str) -> HttpResponse:
    """The same, for a node by name."""
    await _is_node(request, node)
    return await reset(request)


@router.get("/config/effective", auth=ADMINISTRATOR)
async def effective_settings(request: HttpRequest) -> Any:
    """Every setting of the broker as it counts now; secrets are left out."""
    return await ask(request, "settings")


@router.get("/version", auth=None)
async def version(request: HttpRequest) -> Any:
    """The version of RabbitMQ whose API this is. Needs no credentials."""
    return RABBITMQ_VERSION


async def _is_node(request: HttpRequest, name: str) -> None:
    # The right is asked for first: whether the name is a node's is nothing to others.
    nodes = await ask(request, "nodes")
    if name not in [node["name"] for node in nodes]:
        raise Http404


@router.get("/deprecated-features")
async def deprecated_features(request: HttpRequest) -> Any:
    """Nothing is deprecated yet."""
    await ask(request, "whoami")
    return []


@router.get("/deprecated-features/used")
async def deprecated_features_used(request: HttpRequest) -> Any:
    """Nothing is deprecated yet."""
    await ask(request, "whoami")
    return []


@router.get("/auth", auth=None)
async def oauth(request: HttpRequest) -> Any:
    """Whether the pages sign in by OAuth: they do not."""
    return {"oauth_enabled": False}

"""The one node."""

from typing import Any

from django.http import Http404, HttpRequest
from ninja import Query, Router

from api.ask import ask
from api.listing import SampleQuery

router = Router(tags=["Nodes"])


@router.get("/nodes")
async def list_nodes(request: HttpRequest, query: Query[SampleQuery]) -> Any:
    """Resources of the node, in a list of one."""
    return await ask(request, "nodes", **query.of_node())


@router.get("/nodes/{seg:name}")
async def get_node(request: HttpRequest, name: str, query: Query[SampleQuery]) -> Any:
    """Resources of the node."""
    for node in await ask(request, "nodes", **query.of_node()):
        if node["name"] == name:
            return node
    raise Http404


@router.get("/nodes/{seg:name}/memory")
async def get_node_memory(request: HttpRequest, name: str) -> Any:
    """Memory in use, in bytes. The whole process is one figure."""
    used = (await get_node(request, name, SampleQuery()))["mem_used"]
    return {"memory": {"total": {"rss": used, "allocated": used}, "strategy": "rss"}}

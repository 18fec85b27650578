"""The one node."""

from typing import Any

from django.http import Http404, HttpRequest
from ninja import Router

from api.ask import ask

router = Router(tags=["Nodes"])


@router.get("/nodes")
async def list_nodes(request: HttpRequest) -> Any:
    """Resources of the node, in a list of one."""
    return await ask(request, "nodes")


@router.get("/nodes/{seg:name}")
async def get_node(request: HttpRequest, name: str) -> Any:
    """Resources of the node."""
    for node in await ask(request, "nodes"):
        if node["name"] == name:
            return node
    raise Http404


@router.get("/nodes/{seg:name}/memory")
async def get_node_memory(request: HttpRequest, name: str) -> Any:
    """Memory in use, in bytes. The whole process is one figure."""
    used = (await get_node(request, name))["mem_used"]
    return {"memory": {"total": {"rss": used, "allocated": used}, "strategy": "rss"}}

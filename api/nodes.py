"""The one node."""

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from ninja import Query, Router

from api.ask import ask, done
from api.identity import ADMINISTRATOR
from api.listing import SampleQuery

router = Router(tags=["Nodes"])


@router.get("/nodes")
async def list_nodes(request: HttpRequest, query: Query[SampleQuery]) -> Any:
    """Resources of the node, in a list of one."""
    return await ask(request, "nodes", **query.of_node())


@router.get("/nodes/gc_stats")
async def collector(request: HttpRequest) -> Any:
    """How much memory is in use, and how often Python's garbage collector ran."""
    node = (await ask(request, "nodes"))[0]
    return {name: node[name] for name in ("mem_used", "mem_limit", "gc_num")}


@router.post("/nodes/gc_collect", response={204: None}, auth=ADMINISTRATOR)
async def collect(request: HttpRequest) -> HttpResponse:
    """Collect garbage and give freed memory back to the system."""
    await ask(request, "memory.release")
    return done()


@router.get("/nodes/{seg:name}")
async def get_node(request: HttpRequest, name: str, query: Query[SampleQuery]) -> Any:
    """Resources of the node."""
    for node in await ask(request, "nodes", **query.of_node()):
        if node["name"] == name:
            return node
    raise Http404


@router.get("/nodes/{seg:name}/memory")
async def get_node_memory(request: HttpRequest, name: str) -> Any:
    """What the memory is used for, in bytes, as far as it is known."""
    found = await _memory(request, name)
    total = found["total"]
    return {
        "memory": {
            **found["parts"],
            "strategy": found["strategy"],
            "total": {"rss": total, "allocated": total},
        }
    }


@router.get("/nodes/{seg:name}/memory/relative")
async def get_node_memory_shares(request: HttpRequest, name: str) -> Any:
    """The same in percent of all; what is in use at all is 1 at least."""
    found = await _memory(request, name)
    return {"memory": {"total": 100, **_shares(found["parts"], found["total"])}}


async def _memory(request: HttpRequest, name: str) -> Any:
    await get_node(request, name, SampleQuery())
    return await ask(request, "memory")


def _shares(parts: dict[str, int], total: int) -> dict[str, int]:
    return {
        key: max(round(100 * size / total), 1) if size and total else 0
        for key, size in parts.items()
    }


@router.get("/nodes/{seg:name}/memory/ets")
@router.get("/nodes/{seg:name}/memory/ets/relative")
async def get_node_tables(request: HttpRequest, name: str) -> Any:
    """Erlang's tables: there are none."""
    await get_node(request, name, SampleQuery())
    return {"ets_tables_memory": "no_tables"}


@router.get("/nodes/{seg:name}/memory/ets/{seg:table}")
@router.get("/nodes/{seg:name}/memory/ets/{seg:table}/relative")
async def get_node_table(request: HttpRequest, name: str, table: str) -> Any:
    """Likewise of one table."""
    return await get_node_tables(request, name)


@router.post("/nodes/{seg:name}/gc_collect", response={204: None}, auth=ADMINISTRATOR)
async def collect_of_node(request: HttpRequest, name: str) -> HttpResponse:
    """The same, for a node by name."""
    await get_node(request, name, SampleQuery())
    return await collect(request)


@router.post("/rebalance/queues", response={204: None}, auth=ADMINISTRATOR)
async def rebalance(request: HttpRequest) -> HttpResponse:
    """Nothing to do: every queue is on the one node."""
    await ask(request, "whoami")
    return done()

"""Tracing: the firehose of a vhost, led to queues."""

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from ninja import Router, Schema

from api.ask import ask, done, given, put_answer
from api.identity import ADMINISTRATOR
from api.shapes import Text

router = Router(tags=["Tracing"], auth=ADMINISTRATOR)


class Trace(Schema):
    pattern: Text
    queue: Text | None = None


@router.get("/traces")
async def list_traces(request: HttpRequest) -> Any:
    """The traces of all vhosts."""
    return await ask(request, "traces")


@router.get("/traces/{seg:vhost}")
async def list_traces_of(request: HttpRequest, vhost: str) -> Any:
    """The traces of one vhost."""
    return await ask(request, "traces", vhost=vhost)


@router.get("/traces/{seg:vhost}/{seg:name}")
async def get_trace(request: HttpRequest, vhost: str, name: str) -> Any:
    """One trace."""
    for trace in await ask(request, "traces", vhost=vhost):
        if trace["name"] == name:
            return trace
    raise Http404


@router.put("/traces/{seg:vhost}/{seg:name}", response={201: None, 204: None})
async def put_trace(request: HttpRequest, vhost: str, name: str, body: Trace) -> HttpResponse:
    """Trace to a queue: what is published (`publish.<exchange>`) and delivered
    (`deliver.<queue>`) under keys that match the pattern."""
    answer = await ask(request, "trace.put", vhost=vhost, name=name, **given(**body.dict()))
    return put_answer(answer)


@router.delete("/traces/{seg:vhost}/{seg:name}", response={204: None})
async def delete_trace(request: HttpRequest, vhost: str, name: str) -> HttpResponse:
    """End a trace; the last one of a vhost turns its firehose off."""
    await ask(request, "trace.delete", vhost=vhost, name=name)
    return done()


@router.get("/trace-files")
async def list_trace_files(request: HttpRequest) -> Any:
    """Always empty: traces go to queues, not to files."""
    await ask(request, "traces")
    return []

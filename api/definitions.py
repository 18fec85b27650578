"""Definitions in RabbitMQ's format: everything there is, without the messages."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import msgspec
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.encoding import iri_to_uri
from django.utils.http import content_disposition_header, url_has_allowed_host_and_scheme
from ninja import Query, Router, Schema
from pydantic import Field

from api.ask import ask, ask_slices, given
from api.identity import ADMINISTRATOR
from management.broken_answers import BrokenAnswer
from management.broker_client import BrokerError
from management.definitions_text import DefinitionsText
from management.memory import give_back_soon

router = Router(tags=["Definitions"], auth=ADMINISTRATOR)

UPLOAD = "upload"
JSON = "application/json; charset=utf-8"


class Dry(Schema):
    """With `dry_run=true` nothing is changed, and the answer lists what would be."""

    dry_run: str | None = None


class Wanted(Dry):
    """`for`: rabbitmq (the newest), rabbitmq-3, rabbitmq-4 or lavinmq; what that broker cannot read
    is left out, and `dry_run=true` lists it. `secrets=true` includes passwords in URIs and keys.
    `download` names the file that a browser saves."""

    for_: str | None = Field(None, alias="for")
    secrets: str | None = None
    download: str | None = None


@router.get("/definitions")
async def export_definitions(request: HttpRequest, query: Query[Wanted]) -> Any:
    """Users, vhosts, permissions, policies, exchanges, queues and bindings."""
    return await _export(request, query)


@router.get("/all-configuration")
async def export_all_configuration(request: HttpRequest, query: Query[Wanted]) -> Any:
    """An older name of the same."""
    return await _export(request, query)


@router.get("/definitions/{seg:vhost}")
async def export_vhost_definitions(request: HttpRequest, vhost: str, query: Query[Wanted]) -> Any:
    """Policies, exchanges, queues and bindings of one vhost."""
    return await _export(request, query, vhost=vhost)


@router.post("/definitions", response={200: Any, 204: None})
async def import_definitions(request: HttpRequest, query: Query[Dry]) -> Any:
    """Merge definitions in, all or none: JSON, or a form with the field `file`. What exists and
    cannot change is kept. 204 if all of it is in force; else 200 and what was left out and why."""
    return await _import(request, query)


@router.post("/all-configuration", response={200: Any, 204: None})
async def import_all_configuration(request: HttpRequest, query: Query[Dry]) -> Any:
    """An older name of the same."""
    return await _import(request, query)


@router.post("/definitions/{seg:vhost}", response={200: Any, 204: None})
async def import_vhost_definitions(request: HttpRequest, vhost: str, query: Query[Dry]) -> Any:
    """Merge the definitions of one vhost in. LavinMQ's path `upload` is that of the whole node,
    unless there is a vhost of that name."""
    if vhost == UPLOAD and not await _is_vhost(request, vhost):
        return await _import(request, query)
    return await _import(request, query, vhost=vhost)


@router.post("/definitions/{seg:vhost}/upload", response={200: Any, 204: None})
async def upload_vhost_definitions(request: HttpRequest, vhost: str, query: Query[Dry]) -> Any:
    """LavinMQ's path of the same."""
    return await _import(request, query, vhost=vhost)


async def _export(request: HttpRequest, query: Wanted, **where: str) -> Any:
    wanted = {
        "secrets": query.secrets == "true",
        **given(target=query.for_ or None),
        **where,
    }
    if query.dry_run == "true":
        told = await ask(request, "definitions.export", dry_run=True, **wanted)
        answer: HttpResponseBase = HttpResponse(msgspec.json.encode(told), content_type=JSON)
    else:
        answer = await _document(ask_slices(request, "definitions.export", **wanted))
    if not query.download:
        return answer
    name = "".join(each if each.isalnum() or each in "-_. " else "_" for each in query.download)
    answer["Content-Disposition"] = content_disposition_header(True, name[:100] or "definitions")
    return answer


async def _document(slices: AsyncGenerator[dict[str, Any]]) -> HttpResponseBase:
    """The document; one that is long is written as the broker reads it."""
    try:
        first = await anext(slices)
    except BaseException:
        await slices.aclose()
        raise
    text = DefinitionsText(first["head"], first["sections"])
    begun = text.begin() + text.add(first["items"])
    if first["more"]:
        return StreamingHttpResponse(_rest(begun, text, slices), content_type=JSON)
    await slices.aclose()
    return HttpResponse(begun + text.end(), content_type=JSON)


async def _rest(
    begun: bytes, text: DefinitionsText, slices: AsyncGenerator[dict[str, Any]]
) -> AsyncIterator[bytes]:
    """Raises BrokenAnswer if not all comes: the end of the document is missing then."""
    async with aclosing(slices):
        try:
            yield begun
            async for answer in slices:
                yield text.add(answer["items"])
        except BrokerError as error:
            raise BrokenAnswer(error.reason) from None
        finally:
            give_back_soon()
    yield text.end()


async def _is_vhost(request: HttpRequest, name: str) -> bool:
    try:
        await ask(request, "item", noun="vhosts", name=name, disable_stats=True)
    except BrokerError as error:
        if error.status == 404:
            return False
        raise
    return True


async def _import(request: HttpRequest, query: Dry, **where: str) -> Any:
    dry_run = query.dry_run == "true"
    leads_to = _redirect(request)
    text = _text(request)
    # To copy megabytes out of a form is a turn of its own.
    await asyncio.sleep(0)
    answer = await ask(request, "definitions.import", definitions=text, dry_run=dry_run, **where)
    if leads_to:
        return HttpResponse(status=303, headers={"Location": leads_to})
    if dry_run or answer["left_out"] or answer["inactive"]:
        return answer
    return HttpResponse(status=204)


def _redirect(request: HttpRequest) -> str:
    """Where a form wants to go afterwards: its field `redirect`, as pages of RabbitMQ send it.
    Raises BrokerError for another site's address, and for what a header cannot hold: once the
    import is done, it is too late to refuse."""
    if request.content_type != "multipart/form-data":
        return ""
    address = str(request.POST.get("redirect", ""))
    if address and not url_has_allowed_host_and_scheme(address, allowed_hosts=None):
        raise BrokerError(400, "bad_request", "redirect must be a path of this site")
    if not address.isprintable():
        raise BrokerError(400, "bad_request", "redirect must not have control characters")
    return iri_to_uri(address) or ""


def _text(request: HttpRequest) -> bytes:
    """The document as it came: the broker reads it in slices."""
    if request.content_type == "multipart/form-data":
        file = request.FILES.get("file")
        if file is None:
            raise BrokerError(400, "bad_request", "the form has no file in the field `file`")
        return file.read()
    return request.body

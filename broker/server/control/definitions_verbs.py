"""Verbs of definitions: export for this broker or another one, import, difference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from broker.definitions.applying import Failed
from broker.definitions.document import Fault, give_up
from broker.definitions.exporting import Export
from broker.definitions.targets import TARGETS
from broker.schema.control_schema import DefinitionsExport, DefinitionsImport
from broker.server.control.encoding import encode_rows
from broker.server.control.node_verbs import RABBITMQ_VERSION, version
from broker.server.control.open_lists import Stepwise
from broker.server.control.requests import Request, RequestError, bad_request, handles
from broker.server.pace import Pace, paced


@handles("definitions.export")
async def definitions_export(request: Request[DefinitionsExport]) -> Any:
    args = request.args
    if args.target is not None and args.target not in TARGETS:
        known = ", ".join(TARGETS)
        raise bad_request(f"for '{args.target[:100]}' is not known; known are {known}")
    export = Export(
        request.broker,
        request.caller.vhosts(args.vhost),
        scoped=args.vhost is not None,
        target=TARGETS[args.target] if args.target is not None else None,
        secrets=args.secrets,
    )
    form = "cluster" if args.vhost is None else "single_virtual_host"
    if args.slices is not None and not args.dry_run:
        return await _in_slices(request, args.slices, head(form), export)
    try:
        if args.dry_run:
            return await _left_out(args.target, export)
        found = head(form)
        for section, rows in export.sections():
            found[section] = await encode_rows(row for row in rows if row is not None)
        return found
    finally:
        request.broker.run_task(paced(export.give_up()))


async def _left_out(target: str | None, export: Export) -> dict[str, Any]:
    """What the document leaves out, and which plugins the other broker needs for it."""
    pace = Pace()
    for _, rows in export.sections():
        for _ in rows:
            await pace()
    return {
        "for": TARGETS[target].name if target is not None else None,
        "omitted": await encode_rows(export.omitted),
        "plugins": [{"plugin": name, "objects": count} for name, count in export.plugins.items()],
    }


def head(form: str) -> dict[str, Any]:
    """What a document begins with; `form` is `cluster` or `single_virtual_host`."""
    return {
        "rabbit_version": RABBITMQ_VERSION,
        "rabbitmq_version": RABBITMQ_VERSION,
        "product_name": "Leveret",
        "product_version": version(),
        "rabbitmq_definition_format": form,
    }


async def _in_slices(
    request: Request[DefinitionsExport], number: int, head: dict[str, Any], export: Export
) -> dict[str, Any]:
    """The first of the rows, each with the name of its section; the others are read with
    `list.more`."""
    sections = export.sections()
    opened = request.session.lists.open(number, request.caller)
    try:
        at_end = lambda: request.broker.run_task(paced(export.give_up()))  # noqa: E731
        opened.begin(Stepwise(_named(sections), at_end))
        items = await opened.slice()
    except BaseException:
        request.session.lists.close(number)
        raise
    if opened.is_over:
        request.session.lists.close(number)
    return {
        "head": head,
        "sections": [name for name, _ in sections],
        "items": items,
        "more": not opened.is_over,
    }


def _named(sections: list[tuple[str, Iterator[Any]]]) -> Iterator[tuple[str, Any] | None]:
    for name, rows in sections:
        for row in rows:
            yield None if row is None else (name, row)


@handles("definitions.import")
async def definitions_import(request: Request[DefinitionsImport]) -> Any:
    args = request.args
    if args.vhost is not None:
        request.caller.vhost(args.vhost)
    try:
        plan = await request.broker.importing.run(
            args.definitions, args.vhost, dry=args.dry_run, owner=request.caller.name
        )
    except Fault as error:
        raise bad_request(str(error)) from None
    except Failed as error:
        raise RequestError("busy", f"nothing was changed: {error}") from None
    answer = {
        "dry_run": args.dry_run,
        "counts": plan.counts,
        "left_out": await encode_rows(plan.left_out),
        "inactive": await encode_rows(plan.inactive),
    }
    if args.dry_run:
        answer["difference"] = await encode_rows(plan.difference)
    await paced(give_up((plan.left_out, plan.inactive, plan.difference)))
    return answer

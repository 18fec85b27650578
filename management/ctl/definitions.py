"""Commands that write and read definitions files."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from management.ctl.table import (
    DATA,
    Call,
    Command,
    CommandError,
    Parameter,
    runs,
)

_FILE = Parameter(name="file", help="Path of the file; - is standard input or output.")


@runs(
    Command(
        name="export_definitions",
        group="definitions",
        help="Writes users, virtual hosts, queues, exchanges, bindings, policies and parameters "
        "as RabbitMQ's JSON: everything, or one virtual host with -p.",
        examples=(
            "export_definitions backup.json --secrets",
            "export_definitions - -p orders",
            "export_definitions --for rabbitmq --dry-run",
        ),
        verb="definitions.export",
        parameters=(
            Parameter(name="file", help=_FILE.help, optional=True, default="-"),
            Parameter(
                name="--for",
                help="Write only what that broker can read.",
                to="target",
                choices=("rabbitmq", "rabbitmq-3", "rabbitmq-4", "lavinmq"),
            ),
            Parameter(
                name="--secrets", flag=True, help="With passwords in URIs and keys of parameters."
            ),
            Parameter(
                name="--dry-run", flag=True, help="Say what --for leaves out; write nothing."
            ),
        ),
        vhost=True,
    )
)
async def export_definitions(call: Call) -> Any:
    found = await call.ask(
        "definitions.export",
        vhost=call.vhost if call.options["vhost_given"] else None,
        target=call.options["for"],
        secrets=call.options["secrets"],
        dry_run=call.options["dry_run"],
    )
    if call.options["dry_run"]:
        return found
    if call.options["file"] == "-":
        return json.dumps(found, indent=2, ensure_ascii=False)
    path = Path(call.options["file"])
    text = json.dumps(found, indent=2, ensure_ascii=False) + "\n"
    try:
        await asyncio.to_thread(_replace, path, text)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}", DATA) from None
    return f"Exported definitions to {path}"


@runs(
    Command(
        name="import_definitions",
        group="definitions",
        help="Reads a definitions file of Leveret, RabbitMQ or LavinMQ. With -p it is that of one "
        "virtual host.",
        examples=("import_definitions backup.json", "import_definitions - < backup.json"),
        verb="definitions.import",
        parameters=(
            Parameter(name="file", help=_FILE.help, optional=True, default="-"),
            Parameter(name="--dry-run", flag=True, help="Say what would change; change nothing."),
        ),
        vhost=True,
    )
)
async def import_definitions(call: Call) -> Any:
    where = call.options["file"]
    arguments: dict[str, Any] = {"vhost": call.vhost} if call.options["vhost_given"] else {}
    if call.options.get("dry_run"):
        arguments["dry_run"] = True
    answer = await call.ask("definitions.import", definitions=read_file(where), **arguments)
    if answer["dry_run"] or answer["left_out"] or answer["inactive"]:
        return answer
    return f"Imported definitions from {'standard input' if where == '-' else where}"


def read_file(where: str) -> dict[str, Any]:
    """The JSON object in a file or on standard input. Raises CommandError."""
    try:
        text = sys.stdin.read() if where == "-" else Path(where).read_text(encoding="utf-8")
        found = json.loads(text)
    except OSError as error:
        raise CommandError(f"cannot read {where}: {error.strerror}", DATA) from None
    except ValueError as error:
        raise CommandError(f"{where} is not valid JSON: {error}", DATA) from None
    if not isinstance(found, dict):
        raise CommandError(f"{where} holds no JSON object", DATA)
    return found


def _replace(path: Path, text: str) -> None:
    """Writes a file whole or not at all, readable by its owner only: it holds password hashes.
    Raises OSError."""
    descriptor, temporary = tempfile.mkstemp(prefix=path.name, dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise

"""Commands that write and read definitions files."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from management.ctl.output import safe
from management.ctl.table import (
    DATA,
    PRINTED,
    UNAVAILABLE,
    Call,
    Command,
    CommandError,
    Parameter,
    runs,
)
from management.definitions_text import DefinitionsText

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
    wanted = {
        "vhost": call.vhost if call.options["vhost_given"] else None,
        "target": call.options["for"],
        "secrets": call.options["secrets"],
    }
    if call.options["dry_run"]:
        return await call.ask("definitions.export", dry_run=True, **wanted)
    async with aclosing(call.slices("definitions.export", **wanted)) as slices:
        if call.options["file"] == "-":
            async for piece in _document(slices):
                sys.stdout.write(piece.decode())
            return PRINTED
        path = Path(call.options["file"])
        try:
            with _replacing(path) as file:
                async for piece in _document(slices):
                    file.write(piece)
        except OSError as error:
            raise CommandError(f"cannot write {path}: {error.strerror}", DATA) from None
    return f"Exported definitions to {path}"


async def _document(slices: AsyncIterator[dict[str, Any]]) -> AsyncIterator[bytes]:
    """The document in pieces, each written as the broker reads it."""
    text = None
    async for answer in slices:
        if text is None:
            text = DefinitionsText(answer["head"], answer["sections"], in_lines=True)
            yield text.begin()
        yield text.add(answer["items"])
    if text is not None:
        yield text.end()


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


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of the one at `path` when it is written whole, readable by its
    owner only: it holds password hashes. Raises OSError."""
    descriptor, temporary = tempfile.mkstemp(prefix=path.name, dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@runs(
    Command(
        name="definitions",
        group="definitions",
        help="Prints the definitions in a data directory that no broker serves, as RabbitMQ's "
        "JSON. Nothing in the directory is changed. export_definitions asks a broker that runs.",
        examples=(
            "definitions /var/lib/leveret > backup.json",
            "--data-dir /var/lib/leveret definitions --secrets",
        ),
        parameters=(
            Parameter(
                name="directory",
                help="The data directory; else that of --data-dir or of the settings.",
                optional=True,
            ),
            Parameter(
                name="--secrets", flag=True, help="With passwords in URIs and keys of parameters."
            ),
        ),
    )
)
async def definitions(call: Call) -> Any:
    # It brings the whole broker, which no other command needs.
    from broker.server.offline import CannotRead, definitions_of

    config = call.settings()
    if call.options["directory"] is not None:
        config = replace(config, data_dir=Path(call.options["directory"]))
    with tempfile.TemporaryDirectory(prefix="leveret-definitions-") as copy:
        try:
            found = definitions_of(config, Path(copy), secrets=call.options["secrets"])
        except CannotRead as error:
            raise CommandError(str(error), UNAVAILABLE) from None
    for problem in found.problems:
        print(f"Warning: {safe(problem)}", file=sys.stderr)
    return found.document

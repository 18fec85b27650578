"""The verb by which the reports process brings finished files into the data directory, and removes
them: through the broker, so that an observer of the broker's writes sees them too."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.schema.control_schema import FilesCarry
from broker.schema.file_steps import Bring, Link, Remove, Step, Write
from broker.server.control.requests import Request, bad_request, handles
from broker.store.directory import paths, steps

if TYPE_CHECKING:
    from collections.abc import Iterable

FOLDERS = ("usage", "reports")
"""Directories of others' files that the broker keeps."""

WORK = "run"
"""Where the files lie that are to be brought."""


@handles("files.carry")
async def files_carry(request: Request[FilesCarry]) -> Any:
    directory = request.broker.config.data_dir.absolute()
    asked = [_checked(directory, step) for step in request.args.steps]
    try:
        await asyncio.to_thread(steps.carry, asked)
    except OSError as error:
        return {
            "errno": error.errno or 0,
            "reason": error.strerror or str(error),
            "path": os.fspath(error.filename or ""),
        }
    return {"errno": 0, "reason": "", "path": ""}


def _checked(directory: Path, step: Step) -> Step:
    """The step with whole paths. Raises RequestError for one that leads elsewhere."""
    target = _within(directory, step.target, FOLDERS)
    if isinstance(step, Bring):
        return Bring(_within(directory, step.source, (WORK,)), target)
    if isinstance(step, Link):
        return Link(_within(directory, step.source, FOLDERS), target)
    return Write(target, step.data) if isinstance(step, Write) else Remove(target)


def _within(directory: Path, path: str, folders: Iterable[str]) -> str:
    parts = path.split("/")
    allowed = len(parts) > 1 and parts[0] in folders and not {"", ".", ".."} & set(parts)
    if not allowed or "\0" in path:
        raise bad_request(f"{path[:200]!r} is no path below {' or '.join(folders)}/")
    if parts[0] != WORK and paths.row_of(path).kind != "replicated":
        raise bad_request(f"{path[:200]!r} is not for the broker to write")
    return f"{directory}/{path}"

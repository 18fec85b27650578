"""The verb that holds a snapshot of the data directory while its caller copies it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from broker.schema.control_schema import BackupBegin
from broker.server.control.requests import Request, RequestError, handles
from broker.store.directory import snapshot

if TYPE_CHECKING:
    from broker.server.app import Broker

log = logging.getLogger("leveret.backup")


@handles("backup.begin")
async def backup_begin(request: Request[BackupBegin]) -> Any:
    broker = request.broker
    directory = str(broker.config.data_dir)
    if broker.backing_up:
        raise RequestError("busy", "another backup is under way; wait until it has ended")
    broker.backing_up = True
    try:
        taken = await asyncio.to_thread(snapshot.take, directory)
    except OSError as error:
        broker.backing_up = False
        raise RequestError(
            "bad_request", f"cannot take a snapshot of {directory}: {error.strerror}"
        ) from None
    except BaseException:
        broker.run_task(_drop(broker, directory))
        raise
    # The snapshot is the caller's as long as it stays connected.
    request.session.at_end.append(lambda: broker.run_task(_drop(broker, directory)))
    log.info(
        "a backup began: %d files of %d bytes, nothing was written for %.3f s",
        taken.files,
        taken.bytes,
        taken.still_s,
    )
    return {
        "directory": f"{directory}/{snapshot.DIRECTORY}",
        "files": taken.files,
        "bytes": taken.bytes,
        "still_s": taken.still_s,
    }


async def _drop(broker: Broker, directory: str) -> None:
    try:
        await asyncio.to_thread(snapshot.drop, directory)
    except OSError as error:
        log.error("cannot remove the snapshot of the backup: %s", error)
    broker.backing_up = False
    log.info("the backup has ended")

"""Commands that reload and stop the appliance, and names that have no counterpart here."""

from __future__ import annotations

import asyncio
import os
import signal

from management.ctl.table import (
    NO_PERMISSION,
    SOFTWARE,
    TEMPORARY,
    UNAVAILABLE,
    Call,
    Command,
    CommandError,
    Parameter,
    enter,
    runs,
)
from management.starting import PORTS

STOP_MARGIN_S = 10.0


# Processes.


@runs(
    Command(
        name="reload",
        group="node",
        help="Reads settings and certificates again, as SIGHUP does. The log says what changed.",
        examples=("reload",),
        says="Reloading settings and certificates ...",
    )
)
async def reload(call: Call) -> str:
    pid = call.process()
    _signal(pid, signal.SIGHUP)
    return f"Sent SIGHUP to process {pid}"


@runs(
    Command(
        name="rotate_logs",
        group="node",
        help="Does nothing: Leveret logs to standard error, and the service manager that collects "
        "it rotates the files.",
        examples=("rotate_logs",),
        verb="whoami",
    )
)
async def rotate_logs(call: Call) -> str:
    await call.ask("whoami")
    return "Leveret logs to standard error; the service manager rotates its log files"


@runs(
    Command(
        name="stop",
        group="node",
        help="Stops the appliance, or a broker that runs alone, and waits until it has ended: "
        "without --timeout as long as its parts may take one after the other (stop_timeout).",
        examples=("stop", "stop --timeout 30"),
        says="Stopping ...",
        also=("shutdown",),
    )
)
async def stop(call: Call) -> str:
    pid = call.process()
    patience = stop_patience(call.timeout, call.settings().stop_timeout)
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        raise CommandError(f"process {pid} has ended already", UNAVAILABLE) from None
    try:
        _signal(pid, signal.SIGTERM)
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(descriptor, ended.set)
        try:
            async with asyncio.timeout(patience):
                await ended.wait()
        except TimeoutError:
            raise CommandError(
                f"process {pid} has not ended within {patience:g} seconds", TEMPORARY
            ) from None
        finally:
            loop.remove_reader(descriptor)
    finally:
        os.close(descriptor)
    return f"Process {pid} has ended"


def stop_patience(timeout: float | None, stop_timeout: float) -> float:
    """Seconds to wait: as asked for, or as long as the parts may take one after the other."""
    return len(PORTS) * stop_timeout + STOP_MARGIN_S if timeout is None else timeout


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        raise CommandError(f"process {pid} has ended", UNAVAILABLE) from None
    except PermissionError:
        raise CommandError(f"process {pid} belongs to another user", NO_PERMISSION) from None


# RabbitMQ's commands that have no counterpart, and why.
_ONE_NODE = "Leveret runs on one node"
NO_COUNTERPART: dict[str, str] = {
    "reset": "use delete_vhost and delete_user, or stop the broker and remove its data directory",
    "force_reset": "stop the broker and remove its data directory",
    "force_boot": f"{_ONE_NODE}, which never waits for others at its start",
    "join_cluster": _ONE_NODE,
    "forget_cluster_node": _ONE_NODE,
    "change_cluster_node_type": _ONE_NODE,
    "rename_cluster_node": _ONE_NODE,
    "update_cluster_nodes": _ONE_NODE,
    "sync_queue": f"{_ONE_NODE}; queues have no mirrors",
    "cancel_sync_queue": f"{_ONE_NODE}; queues have no mirrors",
    "restart_vhost": "a virtual host runs as long as the broker does",
    "eval": "the broker runs no code from a shell",
    "eval_file": "the broker runs no code from a shell",
    "exec": "this program runs no code; it is Python, and python is beside it",
    "remote_shell": "the broker runs no code from a shell",
    "observer": "it draws Erlang's processes; runtime_thread_stats shows the threads",
    "hipe_compile": "it compiled Erlang; the broker's modules are compiled at its set-up",
    "erlang_cookie_hash": "no nodes share a secret; the control socket belongs to its owner",
    "erlang_cookie_sources": "no nodes share a secret; the control socket belongs to its owner",
    "encode": "values of settings are not encrypted; keep secrets in LEVERET_* variables",
    "decode": "values of settings are not encrypted; keep secrets in LEVERET_* variables",
    "grow": f"{_ONE_NODE}; queues have one copy",
    "shrink": f"{_ONE_NODE}; queues have one copy",
    "add_member": f"{_ONE_NODE}; queues have one copy",
    "delete_member": f"{_ONE_NODE}; queues have one copy",
    "add_replica": f"{_ONE_NODE}; streams have one copy",
    "delete_replica": f"{_ONE_NODE}; streams have one copy",
    "restart_stream": f"{_ONE_NODE}; streams have no leader to elect",
    "set_stream_retention_policy": "use set_policy with max-age or max-length-bytes",
    "add_super_stream": "the stream protocol is not spoken",
    "delete_super_stream": "the stream protocol is not spoken",
    "list_stream_connections": "the stream protocol is not spoken; see list_connections",
    "list_stream_consumers": "the stream protocol is not spoken; see list_consumers",
    "list_stream_publishers": "the stream protocol is not spoken; see list_channels",
    "list_stream_consumer_groups": "the stream protocol is not spoken",
    "list_stream_group_consumers": "the stream protocol is not spoken",
    "list_stream_tracking": "use stream_status --tracking",
    "coordinator_status": f"{_ONE_NODE}; streams need no coordinator",
    "reclaim_quorum_memory": "queues of type quorum keep no log in memory; see force_gc",
}


def _refused(name: str, reason: str) -> None:
    async def run(call: Call) -> None:
        raise CommandError(f"{name} has no counterpart here: {reason}", SOFTWARE)

    enter(
        Command(
            name=name,
            group="node",
            help=f"Not here: {reason}.",
            examples=(),
            parameters=(Parameter(name="argument", help="Ignored.", many=True, optional=True),),
            run=run,
        )
    )


for _name, _reason in NO_COUNTERPART.items():
    _refused(_name, _reason)

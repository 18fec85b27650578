"""Commands that check the health of the node."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any

from management.ctl.table import (
    DATA,
    TEMPORARY,
    UNAVAILABLE,
    Call,
    Command,
    CommandError,
    Parameter,
    Rows,
    enter,
    runs,
    whole,
)

POLL_S = 0.1
START_TIMEOUT_S = 300.0


@runs(
    Command(
        name="ping",
        group="health",
        help="Checks that the broker answers on its control socket.",
        examples=("ping", "ping --timeout 2"),
        verb="whoami",
        says="Pinging the broker ...",
    )
)
async def ping(call: Call) -> str:
    await call.ask("whoami")
    return "Ping succeeded"


@runs(
    Command(
        name="await_startup",
        group="health",
        help="Waits until the broker runs, at most as long as --timeout says (300 seconds). One "
        "whose application is stopped (stop_app) does not.",
        examples=("await_startup --timeout 60",),
        verb="nodes",
        says="Waiting for the broker to start ...",
        also=("wait",),
    )
)
async def await_startup(call: Call) -> str:
    patience = call.timeout if call.timeout is not None else START_TIMEOUT_S
    deadline = time.monotonic() + patience
    while True:
        try:
            if (await call.ask("nodes", disable_stats=True))[0]["running"]:
                return "The broker is running"
        except CommandError as error:
            if error.status not in (UNAVAILABLE, TEMPORARY):
                raise
        if time.monotonic() >= deadline:
            raise CommandError(f"the broker did not start within {patience:g} seconds", TEMPORARY)
        await asyncio.sleep(POLL_S)


# Health checks.


async def check(call: Call, name: str, argument: str | None = None) -> str:
    """Runs a check of the broker. Raises CommandError 69 with its reason if it failed."""
    answer = await call.ask("health", check=name, argument=argument)
    if answer.get("status") == "ok":
        return "Check passed"
    more = {
        key: value for key, value in answer.items() if key not in ("status", "reason") and value
    }
    details = "; ".join(f"{key}: {value}" for key, value in more.items())
    reason = str(answer.get("reason", f"{name} failed"))
    raise CommandError(f"{reason}{f' ({details})' if details else ''}", UNAVAILABLE)


def _simple_check(name: str, of_broker: str, help: str, *also: str) -> None:
    async def run(call: Call) -> str:
        return await check(call, of_broker)

    enter(
        Command(
            name=name,
            group="health",
            help=help,
            examples=(name,),
            verb="health",
            run=run,
            says=f"Running check {name} ...",
            also=also,
        )
    )


_simple_check("check_alarms", "alarms", "Fails if an alarm for memory or disk is in effect.")
_simple_check("check_local_alarms", "local-alarms", "Fails if an alarm of this node is in effect.")
_simple_check(
    "check_virtual_hosts", "virtual-hosts", "Fails if a virtual host is down.", "check_vhosts"
)
_simple_check(
    "check_if_node_is_quorum_critical",
    "node-is-quorum-critical",
    "Fails if stopping the node would take a majority from quorum queues.",
)


_simple_check(
    "check_if_metadata_store_is_initialized",
    "metadata-store-initialized",
    "Fails if definitions are not read yet.",
)
_simple_check(
    "check_if_metadata_store_is_initialized_with_data",
    "metadata-store-initialized-with-data",
    "Fails if definitions are not read yet, or if there is no virtual host.",
)


@runs(
    Command(
        name="check_port_listener",
        group="health",
        help="Fails if nothing listens on a port.",
        examples=("check_port_listener 5672",),
        verb="health",
        parameters=(Parameter(name="port", help="Number of the port."),),
        says="Checking for a listener on port {port} ...",
    )
)
async def check_port_listener(call: Call) -> str:
    return await check(call, "port-listener", call.options["port"])


@runs(
    Command(
        name="check_protocol_listener",
        group="health",
        help="Fails if no port serves a protocol: amqp, amqps, http, ws.",
        examples=("check_protocol_listener amqps",),
        verb="health",
        parameters=(Parameter(name="protocol", help="Name of the protocol."),),
        says="Checking for a listener of protocol {protocol} ...",
    )
)
async def check_protocol_listener(call: Call) -> str:
    return await check(call, "protocol-listener", call.options["protocol"])


@runs(
    Command(
        name="check_certificate_expiration",
        group="health",
        help="Fails if a certificate expires within a time.",
        examples=("check_certificate_expiration --within 2 --unit weeks",),
        verb="health",
        parameters=(
            Parameter(name="--within", help="How long.", read=whole, default=4),
            Parameter(
                name="--unit",
                help="Unit of that.",
                choices=("days", "weeks", "months", "years"),
                default="weeks",
            ),
        ),
        says="Checking that no certificate expires within {within} {unit} ...",
    )
)
async def check_certificate_expiration(call: Call) -> str:
    within = f"{call.options['within']} {call.options['unit']}"
    return await check(call, "certificate-expiration", within)


@runs(
    Command(
        name="check_port_connectivity",
        group="health",
        help="Fails if a listener does not accept a TCP connection.",
        examples=("check_port_connectivity",),
        verb="overview",
        says="Connecting to every listener ...",
    )
)
async def check_port_connectivity(call: Call) -> str:
    wildcards = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound
    for one in (await call.ask("overview"))["listeners"]:
        host, port = one["ip_address"], one["port"]
        if not isinstance(port, int) or port == 0:
            continue  # a Unix socket
        try:
            await asyncio.to_thread(_connect, wildcards.get(host, host), port)
        except OSError as error:
            raise CommandError(
                f"cannot connect to {host}:{port} ({one['protocol']}): {error.strerror or error}",
                UNAVAILABLE,
            ) from None
    return "Check passed"


def _connect(host: str, port: int) -> None:
    socket.create_connection((host, port), timeout=5).close()


@runs(
    Command(
        name="node_health_check",
        group="health",
        help="Runs the checks of alarms, virtual hosts and listeners.",
        examples=("node_health_check",),
        verb="health",
        says="Checking the health of the node ...",
    )
)
async def node_healthcheck(call: Call) -> str:
    for name in ("local-alarms", "virtual-hosts"):
        await check(call, name)
    await check_port_connectivity(call)
    return "Health check passed"


@runs(
    Command(
        name="alarms",
        group="health",
        help="Lists the alarms that are in effect.",
        examples=("alarms",),
        verb="health",
        says="Listing alarms ...",
    )
)
async def alarms(call: Call) -> Rows:
    answer = await call.ask("health", check="alarms")
    rows = [[one["node"], one["resource"]] for one in answer.get("alarms", [])]
    return Rows(("node", "resource"), rows)


@runs(
    Command(
        name="await_online_nodes",
        group="health",
        help="Waits until this many nodes are online; Leveret runs on one.",
        examples=("await_online_nodes 1",),
        verb="whoami",
        parameters=(Parameter(name="count", help="How many.", read=whole),),
        says="Waiting for {count} nodes ...",
    )
)
async def await_online_nodes(call: Call) -> str:
    if call.options["count"] > 1:
        raise CommandError(f"Leveret runs on one node; {call.options['count']} cannot come", DATA)
    return await await_startup(call)


@runs(
    Command(
        name="list_problems",
        group="health",
        help="Lists what needs attention, the heaviest first: queues that are not served, stuck or "
        "full, and the like.",
        examples=("list_problems", "list_problems --only orders --format json"),
        verb="problems",
        parameters=(Parameter(name="--only", help="Only of this virtual host.", names="vhosts"),),
        says="Listing problems ...",
    )
)
async def list_problems(call: Call) -> Rows:
    columns = ("severity", "trouble", "vhost", "name", "text")
    rows: list[list[Any]] = []
    page = 1
    while True:
        answer = await call.ask("problems", vhost=call.options["only"], page=page)
        rows += [[item.get(one) for one in columns] for item in answer["items"]]
        page += 1
        if page > answer["page_count"]:
            return Rows(columns, rows)

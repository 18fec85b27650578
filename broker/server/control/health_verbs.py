"""Health checks, with RabbitMQ's statuses and bodies. One function for each check.

Each answers `{"status": "ok", …}` or `{"status": "failed", "reason": …}`; who asks over HTTP gets
503 for the second.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.schema.control_schema import Health
from broker.schema.errors import AccessRefused, AMQPError
from broker.server.control.certificate_dates import UNITS, expiring
from broker.server.control.getting import take
from broker.server.control.messaging_verbs import queue_of
from broker.server.control.requests import (
    Request,
    RequestError,
    bad_request,
    handles,
    not_found,
)

if TYPE_CHECKING:
    from broker.server.app import Broker

SPOKEN = {
    "amqp": "amqp",
    "amqps": "amqp/ssl",
    "ws": "http/web-amqp",
    "wss": "https/web-amqp",
}
"""RabbitMQ's names of protocols by ours; the others are alike."""

ALSO_CALLED = {
    **dict.fromkeys(("amqp091", "amqp0.9.1", "amqp0-9-1", "amqp0_9_1"), "amqp"),
    "amqps": "amqp/ssl",
    **dict.fromkeys(("ws", "webamqp", "web-amqp", "web_amqp"), "http/web-amqp"),
    **dict.fromkeys(("wss", "webamqp/tls", "web-amqp/tls", "web-amqp/ssl"), "https/web-amqp"),
    **dict.fromkeys(("http1", "http1.1", "http_api", "management", "management_ui", "ui"), "http"),
    "prometheus": "http/prometheus",
}
"""What the check of a protocol understands besides."""

ALIVENESS_QUEUE = "aliveness-test"
ALIVENESS_BODY = b"test_message"

SINGLE = {"status": "ok", "reason": "single node cluster"}

Check = Callable[[Request[Health]], Awaitable[dict[str, Any]]]


def failed(reason: str, **more: Any) -> dict[str, Any]:
    return {"status": "failed", "reason": reason, **more}


@handles("health")
async def health(request: Request[Health]) -> Any:
    return await CHECKS[request.args.check](request)


async def _alarms(request: Request[Health]) -> dict[str, Any]:
    rows = _alarm_rows(request.broker)
    if not rows:
        return {"status": "ok"}
    return failed("There are alarms in effect in the cluster", alarms=rows)


async def _local_alarms(request: Request[Health]) -> dict[str, Any]:
    rows = _alarm_rows(request.broker)
    if not rows:
        return {"status": "ok"}
    return failed("There are alarms in effect on the node", alarms=rows)


async def _node(request: Request[Health]) -> dict[str, Any]:
    """RabbitMQ's older check of a node, with the words of its reason."""
    broker = request.broker
    if request.args.argument not in (None, broker.node_name):
        raise not_found("Not Found")
    rows = _alarm_rows(broker)
    if not rows:
        return {"status": "ok"}
    listed = ",".join(f"{{resource_limit,{row['resource']},{row['node']}}}" for row in rows)
    return failed(f"resource alarm(s) in effect:[{listed}]")


def _alarm_rows(broker: Broker) -> list[dict[str, str]]:
    """What keeps the broker from publishing or confirming: memory, disk space, a disk that does
    not answer or that fails."""
    names = ["disk space" if name == "disk" else name for name in sorted(broker.alarms)]
    names += [row["name"] for row in broker.stall.rows()]
    return [{"node": broker.node_name, "resource": name} for name in names]


async def _virtual_hosts(request: Request[Health]) -> dict[str, Any]:
    damaged = [name for name, vhost in request.broker.vhosts.items() if vhost.is_damaged]
    if not damaged:
        return {"status": "ok"}
    caller = request.caller
    shown = [name for name in damaged if caller.sight.of_vhost_name(name)]
    return failed("Some virtual hosts are down", **{"virtual-hosts": shown})


async def _port_listener(request: Request[Health]) -> dict[str, Any]:
    try:
        port = int(request.args.argument or "")
    except ValueError:
        raise bad_request("Invalid port") from None
    ports = sorted({row["port"] for row in await all_listeners(request.broker)})
    if port in ports:
        return {"status": "ok", "port": port}
    return failed("No active listener", missing=port, ports=ports)


async def _protocol_listener(request: Request[Health]) -> dict[str, Any]:
    asked = (request.args.argument or "").lower()
    protocol = ALSO_CALLED.get(asked, asked)
    protocols = sorted({row["protocol"] for row in await all_listeners(request.broker)})
    if protocol in protocols:
        return {"status": "ok", "protocol": protocol}
    return failed("No active listener", missing=protocol, protocols=protocols)


async def _is_in_service(request: Request[Health]) -> dict[str, Any]:
    if _is_away(request.broker):
        return failed("this rabbit node is not currently available to serve")
    return {"status": "ok"}


def _is_away(broker: Broker) -> bool:
    """Whether it serves no clients, or is in maintenance."""
    return broker.stopping or broker.service.stopped or broker.service.drained


async def _below_connection_limit(request: Request[Health]) -> dict[str, Any]:
    admission = request.broker.admission
    figures = {"limit": admission.limit, "connections": admission.sockets}
    if admission.sockets < admission.limit:
        return {"status": "ok", **figures}
    return failed("node connection limit is reached", **figures)


async def _ready_to_serve(request: Request[Health]) -> dict[str, Any]:
    broker = request.broker
    if _is_away(broker):
        return failed("the rabbit node is not currently available to serve")
    if not any(row["protocol"] in ("amqp", "amqps") for row in broker.listeners):
        return failed("no active listeners for AMQP/AMQPS")
    if broker.admission.sockets >= broker.admission.limit:
        return failed("node connection limit is reached", connections=broker.admission.sockets)
    return {"status": "ok"}


async def _single(request: Request[Health]) -> dict[str, Any]:
    return SINGLE


async def _initialized(request: Request[Health]) -> dict[str, Any]:
    # Definitions are read before the control socket opens.
    return {"status": "ok"}


async def _initialized_with_data(request: Request[Health]) -> dict[str, Any]:
    if request.broker.vhosts:
        return {"status": "ok"}
    return failed(
        "Metadata store has not yet been initialized: it reports to have no virtual hosts"
    )


async def _certificate_expiration(request: Request[Health]) -> dict[str, Any]:
    """`argument`: a whole number and a unit, as `3 months`."""
    number, _, unit = (request.args.argument or "").partition(" ")
    try:
        count = int(number)
    except ValueError:
        raise bad_request("Invalid expiration value.") from None
    length = UNITS.get(unit.lower())
    if length is None:
        raise bad_request("Time unit not recognised. Supported units: days, weeks, months, years.")
    try:
        within = length * count
    except OverflowError:
        raise bad_request("Invalid expiration value.") from None
    broker = request.broker
    secure = [
        row
        for row in await all_listeners(broker)
        if row["protocol"] in ("amqp/ssl", "https", "https/web-amqp")
    ]
    certificates = broker.certificates
    loop = asyncio.get_running_loop()
    authorities = certificates.authorities
    ca_ends = []
    if authorities is not None:
        ca_ends = await loop.run_in_executor(None, expiring, authorities.content, within)
    expired = []
    for file in certificates.files:
        ends = await loop.run_in_executor(None, expiring, file.content, within)
        if ends or ca_ends:
            expired += [
                {
                    "node": broker.node_name,
                    "protocol": row["protocol"],
                    "interface": row["ip_address"],
                    "port": row["port"],
                    "certfile": str(file.path),
                    "cacertfile": str(authorities.path) if authorities is not None else "",
                    "certfile_expires_on": ends,
                    "cacertfile_expires_on": ca_ends,
                }
                for row in secure
            ]
    return failed("Certificates expiring", expired=expired) if expired else {"status": "ok"}


async def _aliveness(request: Request[Health]) -> dict[str, Any]:
    """Declares a queue as RabbitMQ does, publishes to it and takes the message out again."""
    caller = request.caller
    vhost = caller.vhost(request.args.argument or "/")
    rights = caller.rights(vhost.name)
    try:
        rights.check("configure", "queue", ALIVENESS_QUEUE)
        rights.check("write", "exchange", "")
        rights.check("read", "queue", ALIVENESS_QUEUE)
        queue = vhost.queues.get(ALIVENESS_QUEUE)
        if queue is None:
            queue, _ = vhost.declare_queue(ALIVENESS_QUEUE, arguments={})
        # It may be another connection's own: then no message goes in and none is taken out.
        queue = queue_of(vhost, ALIVENESS_QUEUE, caller, use=True)
        vhost.publish(vhost.exchanges[""], [ALIVENESS_QUEUE], {}, ALIVENESS_BODY)
        taken = await take(queue, 1, requeue=False, acked=True, truncate=0, bytes_max=0)
    except AccessRefused:
        raise
    except (AMQPError, RequestError) as error:
        return failed(str(error))
    if not taken:
        return failed(
            f"no message came back from queue '{ALIVENESS_QUEUE}' in vhost '{vhost.name}'"
        )
    return {"status": "ok"}


async def all_listeners(broker: Broker) -> list[dict[str, Any]]:
    """What listens where, as the rows of the overview, with those of the web process."""
    rows = [
        {
            "node": broker.node_name,
            "protocol": SPOKEN.get(one["protocol"], one["protocol"]),
            "ip_address": one["ip_address"],
            "port": one["port"],
        }
        for one in broker.listeners
    ]
    note = Path(broker.config.run_dir) / "web.json"
    web = await asyncio.get_running_loop().run_in_executor(None, _web_listeners, note)
    return rows + [
        {"node": broker.node_name, "protocol": protocol, "ip_address": where[0], "port": where[1]}
        for protocol, where in web.items()
    ]


def _web_listeners(note: Path) -> dict[str, tuple[str, int]]:
    """What the web process has noted of its listeners; empty if it does not run."""
    try:
        facts = json.loads(note.read_bytes())
        os.kill(facts.pop("pid")["web"], 0)
    except (OSError, ValueError, LookupError):
        return {}
    return {name: (str(where[0]), int(where[1])) for name, where in facts.items()}


CHECKS: dict[str, Check] = {
    "alarms": _alarms,
    "local-alarms": _local_alarms,
    "node": _node,
    "virtual-hosts": _virtual_hosts,
    "port-listener": _port_listener,
    "protocol-listener": _protocol_listener,
    "is-in-service": _is_in_service,
    "ready-to-serve-clients": _ready_to_serve,
    "below-node-connection-limit": _below_connection_limit,
    "node-is-quorum-critical": _single,
    "node-is-mirror-sync-critical": _single,
    "reached-target-cluster-size": _initialized,
    "metadata-store-initialized": _initialized,
    "metadata-store-initialized-with-data": _initialized_with_data,
    "certificate-expiration": _certificate_expiration,
    "aliveness": _aliveness,
}

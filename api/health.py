"""Health checks: 200 when well, 503 with the reason when not."""

from typing import Any

from django.http import HttpRequest
from ninja import Router
from ninja.responses import Status

from api.ask import ask, given
from management.appliance import broker

router = Router(tags=["Health"])
ANSWERS = {200: Any, 503: Any}


async def _check(request: HttpRequest, check: str, argument: str | None = None) -> Status[Any]:
    return _status(await ask(request, "health", check=check, **given(argument=argument)))


async def _public(check: str) -> Status[Any]:
    """A check that needs no credentials."""
    return _status(await broker().call("health", check=check))


def _status(answer: dict[str, Any]) -> Status[Any]:
    return Status(200 if answer["status"] == "ok" else 503, answer)


@router.get("/health/checks/alarms", response=ANSWERS)
async def alarms(request: HttpRequest) -> Any:
    """No alarm is in force: memory, disk space, a disk that does not answer."""
    return await _check(request, "alarms")


@router.get("/health/checks/local-alarms", response=ANSWERS)
async def local_alarms(request: HttpRequest) -> Any:
    """No alarm is in force on this node."""
    return await _check(request, "local-alarms")


@router.get("/health/checks/virtual-hosts", response=ANSWERS)
async def virtual_hosts(request: HttpRequest) -> Any:
    """No vhost lost definitions or whole queues at the last start."""
    return await _check(request, "virtual-hosts")


@router.get("/health/checks/node-is-mirror-sync-critical", response=ANSWERS)
async def node_is_mirror_sync_critical(request: HttpRequest) -> Any:
    """No queue would lose its only synchronised mirror with this node: there are no mirrors."""
    return await _check(request, "node-is-mirror-sync-critical")


@router.get("/health/checks/node-is-quorum-critical", response=ANSWERS)
async def node_is_quorum_critical(request: HttpRequest) -> Any:
    """No queue would lose its quorum with this node. A single node is a cluster of one."""
    return await _check(request, "node-is-quorum-critical")


LEADERS = "/health/checks/quorum-queues-without-elected-leaders"


async def _leaders(request: HttpRequest, vhost: str | None, pattern: str | None) -> Status[Any]:
    """The queues it could be about are listed, so that a wrong vhost or pattern is noticed; on one
    node each of them is its own leader."""
    filters = given(vhost=vhost, name=pattern, use_regex=True if pattern else None)
    await ask(request, "list", noun="queues", page=1, page_size=1, **filters)
    return Status(200, {"status": "ok"})


@router.get(LEADERS + "/all-vhosts", response=ANSWERS)
async def leaders(request: HttpRequest) -> Any:
    """Every quorum queue has a leader."""
    return await _leaders(request, None, None)


@router.get(LEADERS + "/all-vhosts/pattern/{seg:pattern}", response=ANSWERS)
async def leaders_matching(request: HttpRequest, pattern: str) -> Any:
    """Every quorum queue with such a name has a leader."""
    return await _leaders(request, None, pattern)


@router.get(LEADERS + "/vhost/{seg:vhost}", response=ANSWERS)
async def leaders_of(request: HttpRequest, vhost: str) -> Any:
    """Every quorum queue of a vhost has a leader."""
    return await _leaders(request, vhost, None)


@router.get(LEADERS + "/vhost/{seg:vhost}/pattern/{seg:pattern}", response=ANSWERS)
async def leaders_of_matching(request: HttpRequest, vhost: str, pattern: str) -> Any:
    """Every quorum queue of a vhost with such a name has a leader."""
    return await _leaders(request, vhost, pattern)


@router.get("/health/checks/port-listener/{seg:port}", response=ANSWERS)
async def port_listener(request: HttpRequest, port: str) -> Any:
    """Something listens on the port."""
    return await _check(request, "port-listener", port)


@router.get("/health/checks/protocol-listener/{seg:protocol}", response=ANSWERS)
async def protocol_listener(request: HttpRequest, protocol: str) -> Any:
    """Something listens for the protocol, such as `amqp` or `http`."""
    return await _check(request, "protocol-listener", protocol)


@router.get("/health/checks/certificate-expiration/{seg:within}/{seg:unit}", response=ANSWERS)
async def certificate_expiration(request: HttpRequest, within: str, unit: str) -> Any:
    """No certificate expires within this number of `days`, `weeks`, `months` or `years`."""
    return await _check(request, "certificate-expiration", f"{within} {unit}")


@router.get("/health/checks/is-in-service", response=ANSWERS, auth=None)
async def is_in_service(request: HttpRequest) -> Any:
    """The broker takes connections. Needs no credentials."""
    return await _public("is-in-service")


@router.get("/health/checks/ready-to-serve-clients", response=ANSWERS, auth=None)
async def ready_to_serve_clients(request: HttpRequest) -> Any:
    """The broker serves, listens for AMQP and has room for a connection. Needs no credentials."""
    return await _public("ready-to-serve-clients")


@router.get("/health/checks/below-node-connection-limit", response=ANSWERS, auth=None)
async def below_node_connection_limit(request: HttpRequest) -> Any:
    """There is room for another connection (`connections_max`). Needs no credentials."""
    return await _public("below-node-connection-limit")


@router.get("/health/checks/reached-target-cluster-size", response=ANSWERS, auth=None)
async def reached_target_cluster_size(request: HttpRequest) -> Any:
    """One node is the whole cluster. Needs no credentials."""
    return await _public("reached-target-cluster-size")


@router.get("/health/checks/metadata-store/initialized", response=ANSWERS)
async def metadata_store_initialized(request: HttpRequest) -> Any:
    """Definitions are read before the broker serves requests."""
    return await _check(request, "metadata-store-initialized")


@router.get("/health/checks/metadata-store/initialized/with-data", response=ANSWERS)
async def metadata_store_initialized_with_data(request: HttpRequest) -> Any:
    """Definitions are read, and there is a vhost."""
    return await _check(request, "metadata-store-initialized-with-data")


@router.get("/aliveness-test/{seg:vhost}", response=ANSWERS)
async def aliveness_test(request: HttpRequest, vhost: str) -> Any:
    """A message goes through the queue `aliveness-test` of the vhost, which is declared for it."""
    return await _check(request, "aliveness", vhost)


@router.get("/healthchecks/node", response=ANSWERS)
async def node_health(request: HttpRequest) -> Any:
    """An older check of alarms, kept for monitoring systems that ask it."""
    return await _check(request, "node")


@router.get("/healthchecks/node/{seg:name}", response=ANSWERS)
async def named_node_health(request: HttpRequest, name: str) -> Any:
    """The same, for a node by name."""
    return await _check(request, "node", name)

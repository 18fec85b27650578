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
    answer = await ask(request, "health", check=check, **given(argument=argument))
    return _status(answer)


def _status(answer: dict[str, Any]) -> Status[Any]:
    return Status(200 if answer["status"] == "ok" else 503, answer)


@router.get("/health/checks/alarms", response=ANSWERS)
async def alarms(request: HttpRequest) -> Any:
    """No alarm is in force."""
    return await _check(request, "alarms")


@router.get("/health/checks/local-alarms", response=ANSWERS)
async def local_alarms(request: HttpRequest) -> Any:
    """No alarm is in force on this node."""
    return await _check(request, "local-alarms")


@router.get("/health/checks/virtual-hosts", response=ANSWERS)
async def virtual_hosts(request: HttpRequest) -> Any:
    """Every vhost runs."""
    return await _check(request, "virtual-hosts")


@router.get("/health/checks/node-is-quorum-critical", response=ANSWERS)
async def node_is_quorum_critical(request: HttpRequest) -> Any:
    """A single node is never one of a quorum."""
    return await _check(request, "node-is-quorum-critical")


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
    """No certificate expires within so many `days`, `weeks`, `months` or `years`."""
    return await _check(request, "certificate-expiration", f"{within} {unit}")


@router.get("/health/checks/is-in-service", response=ANSWERS, auth=None)
async def is_in_service(request: HttpRequest) -> Any:
    """The broker takes connections. Needs no credentials."""
    return _status(await broker().call("health", check="is-in-service"))


@router.get("/health/checks/ready-to-serve-clients", response=ANSWERS, auth=None)
async def ready_to_serve_clients(request: HttpRequest) -> Any:
    """The broker is ready for clients. Needs no credentials."""
    return _status(await broker().call("health", check="ready-to-serve-clients"))


@router.get("/health/checks/below-node-connection-limit", response=ANSWERS, auth=None)
async def below_node_connection_limit(request: HttpRequest) -> Any:
    """There is no limit for the node, so this asks for service. Needs no credentials."""
    return _status(await broker().call("health", check="is-in-service"))


@router.get("/health/checks/reached-target-cluster-size", response=ANSWERS, auth=None)
async def reached_target_cluster_size(request: HttpRequest) -> Any:
    """One node is all there is to be. Needs no credentials."""
    return _status(await broker().call("health", check="is-in-service"))


@router.get("/health/checks/metadata-store/initialized", response=ANSWERS)
async def metadata_store_initialized(request: HttpRequest) -> Any:
    """Definitions are read before the broker serves anyone."""
    return await _check(request, "is-in-service")


@router.get("/aliveness-test/{seg:vhost}", response=ANSWERS)
async def aliveness_test(request: HttpRequest, vhost: str) -> Any:
    """A message goes through the vhost."""
    return await _check(request, "aliveness", vhost)


@router.get("/healthchecks/node", response=ANSWERS)
async def node_health(request: HttpRequest) -> Any:
    """An older check, kept for monitoring systems that ask it."""
    return await _check(request, "local-alarms")


@router.get("/healthchecks/node/{seg:name}", response=ANSWERS)
async def named_node_health(request: HttpRequest, name: str) -> Any:
    """The same, for a node by name."""
    return await _check(request, "local-alarms")

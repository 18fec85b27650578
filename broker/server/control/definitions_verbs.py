"""Export and import of definitions in RabbitMQ's format."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from broker.access import BadSetting, Parameter, passwords
from broker.control_schema import DefinitionsExport, DefinitionsImport
from broker.errors import AMQPError
from broker.policies import Policy
from broker.server.control.admin_verbs import put_user, put_vhost, words
from broker.server.control.encoding import Pace, encode_rows
from broker.server.control.node_verbs import RABBITMQ_VERSION, version
from broker.server.control.parameter_verbs import put_vhost_limits
from broker.server.control.policy_rows import policy_row
from broker.server.control.policy_verbs import policy_of, put_policy
from broker.server.control.requests import Request, RequestError, bad_request, handles

log = logging.getLogger(__name__)

_Row = dict[str, Any]


@handles("definitions.export")
async def definitions_export(request: Request[DefinitionsExport]) -> Any:
    broker, only = request.broker, request.args.vhost
    access = broker.access
    vhosts = request.caller.vhosts(only)
    found: dict[str, Any] = {
        "rabbit_version": RABBITMQ_VERSION,
        "rabbitmq_version": RABBITMQ_VERSION,
        "product_name": "Leveret",
        "product_version": version(),
        "rabbitmq_definition_format": "single_virtual_host" if only is not None else "cluster",
    }
    if only is None:
        found["users"] = [
            {
                "name": user.name,
                "password_hash": user.password_hash,
                "hashing_algorithm": user.hashing_algorithm,
                "tags": list(user.tags),
                "limits": dict(user.limits),
            }
            for user in access.users.values()
        ]
        found["vhosts"] = [
            {
                "name": vhost.name,
                "description": vhost.description,
                "tags": vhost.tags,
                "default_queue_type": vhost.default_queue_type,
                "metadata": {"description": vhost.description, "tags": vhost.tags},
            }
            for vhost in vhosts
        ]
        found["permissions"] = msgspec.to_builtins(list(access.permissions.values()))
        found["topic_permissions"] = msgspec.to_builtins(list(access.topic_permissions.values()))
        found["global_parameters"] = [
            {"name": name, "value": value} for name, value in access.global_parameters.items()
        ]
    scoped = only is None
    found["parameters"] = [
        _scoped(row, scoped)
        for row in (
            *(msgspec.to_builtins(row) for row in access.parameters.all()),
            *(_operator_policy(policy) for policy in broker.policies.all(operator=True)),
        )
        if scoped or row["vhost"] == only
    ]
    found["policies"] = [
        _scoped(policy_row(policy), scoped)
        for policy in broker.policies.all()
        if scoped or policy.vhost == only
    ]
    found["queues"] = await encode_rows(_rows_of(vhosts, _queues, scoped))
    found["exchanges"] = await encode_rows(_rows_of(vhosts, _exchanges, scoped))
    found["bindings"] = await encode_rows(_rows_of(vhosts, _bindings, scoped))
    return found


def _rows_of(
    vhosts: list[Any], rows: Callable[[Any], Iterator[_Row]], scoped: bool
) -> Iterator[_Row]:
    for vhost in vhosts:
        for row in rows(vhost):
            yield {**row, "vhost": vhost.name} if scoped else row


@handles("definitions.import")
async def definitions_import(request: Request[DefinitionsImport]) -> Any:
    """Carries out a definitions map section by section; the first wrong row ends it."""
    broker, given, only = request.broker, request.args.definitions, request.args.vhost
    if only is not None:
        request.caller.vhost(only)
    pace = Pace()
    skipped: set[str] = set()
    steps = (
        ("users", _import_user),
        ("vhosts", _import_vhost),
        ("permissions", _import_permission),
        ("topic_permissions", _import_topic_permission),
        ("parameters", _import_parameter),
        ("global_parameters", _import_global_parameter),
        ("policies", _import_policy),
        ("operator_policies", _import_operator_policy),
        ("queues", _import_queue),
        ("exchanges", _import_exchange),
        ("bindings", _import_binding),
    )
    for section, step in steps:
        rows = given.get(section) or []
        if only is not None and section in _WHOLE_NODE:
            continue
        if not isinstance(rows, list):
            raise bad_request(f"definitions: {section} is not a list")
        for place, row in enumerate(rows):
            if not isinstance(row, dict):
                raise bad_request(f"definitions: {section}[{place}] is not an object")
            if only is not None:
                row = {**row, "vhost": only}
            try:
                await step(broker, row)
            except KeyError as error:
                reason = f"definitions: {section}[{place}]: {error} is missing"
                raise bad_request(reason) from None
            except (BadSetting, AMQPError, RequestError, msgspec.ValidationError) as error:
                raise bad_request(f"definitions: {section}[{place}]: {error}") from None
            await pace()
    await broker.policy_sweep.over()
    if skipped:
        names = ", ".join(sorted(skipped))
        log.warning("definitions import: %s are not supported yet and were left out", names)
    return {"skipped": sorted(skipped)}


_WHOLE_NODE = ("users", "vhosts", "permissions", "topic_permissions", "global_parameters")


async def _import_user(broker: Any, row: _Row) -> None:
    algorithm = row.get("hashing_algorithm") or passwords.SHA256
    password_hash = row.get("password_hash") or ""
    if row.get("password"):
        password_hash = await broker.logins.hash(row["password"])
        algorithm = passwords.ARGON2ID
    limits = msgspec.convert(row.get("limits") or {}, dict[str, int])
    tags = words(msgspec.convert(row.get("tags", []), list[str] | str))
    put_user(broker, _text(row, "name"), tags, password_hash, algorithm, limits)


async def _import_vhost(broker: Any, row: _Row) -> None:
    metadata = row.get("metadata") or {}
    await put_vhost(
        broker,
        _text(row, "name"),
        description=row.get("description", metadata.get("description")),
        tags=words(row.get("tags", metadata.get("tags")) or []),
        default_queue_type=row.get("default_queue_type"),
    )


async def _import_permission(broker: Any, row: _Row) -> None:
    vhost = _vhost(broker, row)
    patterns = [_text(row, name) for name in ("configure", "write", "read")]
    user = _user(broker, row)
    broker.access.put_permission(user, vhost.name, *patterns)
    broker.emit("permission.changed", {"vhost": vhost.name, "user": user})


async def _import_topic_permission(broker: Any, row: _Row) -> None:
    vhost = _vhost(broker, row)
    texts = [_text(row, name) for name in ("exchange", "write", "read")]
    user = _user(broker, row)
    broker.access.put_topic_permission(user, vhost.name, *texts)
    broker.emit("permission.changed", {"vhost": vhost.name, "user": user})


async def _import_parameter(broker: Any, row: _Row) -> None:
    component = row["component"]
    if component == "operator_policy":
        value = msgspec.convert(row["value"], dict[str, Any])
        await _import_operator_policy(broker, {**value, **_named(row)})
    elif component == "vhost-limits":
        put_vhost_limits(broker, _vhost(broker, row).name, row["value"])
    else:
        parameter = Parameter(component, _vhost(broker, row).name, _text(row, "name"), row["value"])
        broker.access.parameters.put(parameter)


async def _import_policy(broker: Any, row: _Row) -> None:
    put_policy(broker, policy_of(row, _vhost(broker, row).name), operator=False)


async def _import_operator_policy(broker: Any, row: _Row) -> None:
    put_policy(broker, policy_of(row, _vhost(broker, row).name), operator=True)


def _operator_policy(policy: Policy) -> _Row:
    # RabbitMQ writes operator policies among the parameters.
    value = {name: item for name, item in policy_row(policy).items() if name not in _NAMED}
    return {
        "component": "operator_policy",
        "vhost": policy.vhost,
        "name": policy.name,
        "value": value,
    }


_NAMED = ("vhost", "name")


def _named(row: _Row) -> _Row:
    return {name: row[name] for name in _NAMED if name in row}


def _scoped(row: _Row, with_vhost: bool) -> _Row:
    return row if with_vhost else {name: row[name] for name in row if name != "vhost"}


async def _import_global_parameter(broker: Any, row: _Row) -> None:
    broker.access.parameters.put_global(_text(row, "name"), row["value"])


async def _import_queue(broker: Any, row: _Row) -> None:
    vhost, name = _vhost(broker, row), _text(row, "name")
    if name not in vhost.queues:
        vhost.declare_queue(
            name,
            durable=bool(row.get("durable", False)),
            auto_delete=bool(row.get("auto_delete", False)),
            arguments=_arguments(row),
            by_default=False,
        )


async def _import_exchange(broker: Any, row: _Row) -> None:
    vhost, name = _vhost(broker, row), _text(row, "name")
    if name not in vhost.exchanges:
        vhost.declare_exchange(
            name,
            row.get("type", "direct"),
            durable=bool(row.get("durable", False)),
            auto_delete=bool(row.get("auto_delete", False)),
            internal=bool(row.get("internal", False)),
            arguments=_arguments(row),
        )


async def _import_binding(broker: Any, row: _Row) -> None:
    vhost = _vhost(broker, row)
    vhost.bind(
        _text(row, "source"),
        _text(row, "destination"),
        _text(row, "destination_type"),
        row.get("routing_key", ""),
        _arguments(row),
    )


def _vhost(broker: Any, row: _Row) -> Any:
    name = row.get("vhost", "/")
    vhost = broker.vhosts.get(name)
    if vhost is None:
        raise bad_request(f'Please create virtual host "{name}" prior to importing definitions.')
    return vhost


def _user(broker: Any, row: _Row) -> str:
    name = _text(row, "user")
    if name not in broker.access.users:
        raise bad_request(f"user '{name}' does not exist")
    return name


def _text(row: _Row, name: str) -> str:
    value = row[name]
    if not isinstance(value, str):
        raise bad_request(f"{name} is not text")
    return value


def _arguments(row: _Row) -> dict[str, Any]:
    # An empty list is what PHP and Erlang write for an empty object.
    return msgspec.convert(row.get("arguments") or {}, dict[str, Any])


def _queues(vhost: Any) -> Iterator[_Row]:
    for queue in list(vhost.queues.values()):
        if not queue.exclusive:
            yield {
                "name": queue.name,
                "durable": queue.durable,
                "auto_delete": queue.auto_delete,
                "arguments": queue.arguments,
            }


def _exchanges(vhost: Any) -> Iterator[_Row]:
    for exchange in list(vhost.exchanges.values()):
        if exchange.name and not exchange.name.startswith("amq."):
            yield {
                "name": exchange.name,
                "type": exchange.type,
                "durable": exchange.durable,
                "auto_delete": exchange.auto_delete,
                "internal": exchange.internal,
                "arguments": exchange.arguments,
            }


def _bindings(vhost: Any) -> Iterator[_Row]:
    for exchange in list(vhost.exchanges):
        if not exchange:
            continue
        for binding in vhost.bindings(source=exchange):
            if not _is_exclusive(vhost, binding):
                yield {
                    "source": binding.source,
                    "destination": binding.destination,
                    "destination_type": binding.destination_type,
                    "routing_key": binding.routing_key,
                    "arguments": binding.arguments,
                }


def _is_exclusive(vhost: Any, binding: Any) -> bool:
    queue = vhost.queues.get(binding.destination)
    return binding.destination_type == "queue" and queue is not None and queue.exclusive

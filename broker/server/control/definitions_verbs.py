"""Export and import of definitions in RabbitMQ's format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from broker.access.secrets import without_secrets
from broker.control_schema import DefinitionsExport, DefinitionsImport
from broker.definitions.applying import Failed
from broker.definitions.document import Fault
from broker.policies import Policy
from broker.server.control.encoding import encode_rows
from broker.server.control.node_verbs import RABBITMQ_VERSION, version
from broker.server.control.policy_rows import policy_row
from broker.server.control.requests import Request, RequestError, bad_request, handles

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
            *(
                {
                    **msgspec.to_builtins(row),
                    "value": row.value if request.args.secrets else without_secrets(row.value),
                }
                for row in access.parameters.all()
            ),
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
    args = request.args
    if args.vhost is not None:
        request.caller.vhost(args.vhost)
    try:
        plan = await request.broker.importing.run(args.definitions, args.vhost, dry=args.dry_run)
    except Fault as error:
        raise bad_request(str(error)) from None
    except Failed as error:
        raise RequestError("busy", f"nothing was changed: {error}") from None
    answer = {
        "dry_run": args.dry_run,
        "counts": plan.counts,
        "left_out": await encode_rows(plan.left_out),
        "inactive": await encode_rows(plan.inactive),
    }
    if args.dry_run:
        answer["difference"] = await encode_rows(plan.difference)
    return answer


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


def _scoped(row: _Row, with_vhost: bool) -> _Row:
    return row if with_vhost else {name: row[name] for name in row if name != "vhost"}


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

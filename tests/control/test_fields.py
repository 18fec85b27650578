"""All fields of all rows of a broker under load: each moves, or is listed with the reason why it
stands still."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

from management.broker_client import BrokerClient
from tests.conftest import Make
from tests.control.loaded import Load, load
from tests.control.test_real_broker import control, until

# How often is looked at most: a rate or a time can be the same in a few samples by chance.
ROUNDS = 20
NOUNS = ("queues", "exchanges", "connections", "channels", "consumers", "bindings", "vhosts")
AGES = dict.fromkeys(("lengths", "msg_rates", "data_rates", "node_stats"), (10, 1))

# Field, a noun before a colon where it means one only, and why it may stand still.
STANDING = {
    "*.samples[[]]": "as many samples as were asked for",
    "*arguments*": "as the object was declared",
    "*settings[[]]*": "as it was declared, or set by the one policy",
    "*effective_policy_definition*": "the one policy",
    "exchanges:operator_policy": "no operator policy has a key of exchanges",
    "*node": "the one node",
    "*vhost": "all objects are in one vhost",
    "*connection_name": "all consumers are of one connection, all publishers of the other",
    "*peer_host": "both clients are on this machine",
    "*peer_port": "see connection_name",
    "*user": "one user",
    "*user_who_performed_action": "one user",
    "*user_provided_name": "see connection_name",
    "*owner_pid_details.name": "one queue is exclusive",
    "*deliver_no_ack_details.rate": "deliveries without acknowledgement are of one queue",
    "connections:client_properties*": "what pika says",
    "connections:ssl*": "no TLS here; tests/listeners looks at it",
    "connections:peer_cert*": "no TLS here; tests/listeners looks at it",
    "connections:[achfpt]*": "negotiated when the connection was opened",
    "connections:send_pend": "the clients read all there is; tests/control/test_figures.py",
    "*state": "nothing is paused, blocked or in flow; tests of these are in tests/amqp",
    "*:idle_since": "it stands while an object is idle",
    "queues:leader": "the one node",
    "queues:members[[]]": "the one node",
    "queues:online[[]]": "the one node",
    "queues:oldest_unconfirmed": "no queue confirms when its consumer acks",
    "queues:segments": "less than a segment was published",
    "queues:storage_version": "the version of the only format",
    "*stream.[!n]*": "one stream that is read to its end, without filter, loss or tracking",
    "channels:pending_raft_commands": "queues of type quorum have no replicas here",
    "channels:acks_uncommitted": "the transaction only publishes",
    "channels:messages_unconfirmed": "each publish waits for its confirm",
    "vhosts:default_queue_type": "not set",
    "vhosts:*protected_from_deletion": "not set",
    "vhosts:tracing": "not turned on",
    "vhosts:cluster_state*": "the one node",
    "*connection_closed*": "no connection was closed",
    "*connection_created*": "no connection came",
    "overview:object_totals*": "what was declared stays",
    "overview:alarms[[]]": "no alarm; tests/amqp/test_alarms.py",
    "overview:health*": "the same problem all the time",
    "overview:problem*": "the same problem all the time",
    "overview:queue_troubles*": "how many queues have which trouble",
    "overview:top_*": "the busiest stay the same",
    "overview:durability*": "percentiles of few rounds",
    "overview:*version": "what runs",
    "overview:*name": "what runs",
    "overview:*tags[[]]": "RabbitMQ's, of a cluster",
    "overview:contexts[[]]": "the web process knows them and adds them",
    "overview:listeners*": "as started",
    "overview:disable_stats": "a setting of RabbitMQ that is off here",
    "overview:enable_queue_totals": "a setting of RabbitMQ that is off here",
    "overview:is_op_policy_updating_enabled": "a setting of RabbitMQ that is off here",
    "overview:release_series_support_status": "RabbitMQ's word for a supported version",
    "overview:statistics_db_event_queue": "there is no such queue: statistics are in the broker",
    "overview:started_at": "the start",
    "*rates_mode": "RabbitMQ's word for rates by publisher",
    "*exchange_types[[]]*": "the types there are",
    "nodes:applications[[]]*": "what runs",
    "nodes:auth_mechanisms[[]]*": "what the settings allow",
    "nodes:*alarm": "no alarm; tests/amqp/test_alarms.py",
    "nodes:*_limit": "settings and the machine",
    "nodes:*_total": "the machine",
    "nodes:*[[]]": "nothing of the kind: files, partitions, links, damage",
    "nodes:msg_store*": "no body is large enough to be shared; tests/store/test_body_figures.py",
    "nodes:io_read_count": "all is read from memory; tests/store",
    "nodes:*_p[59][09]_ms": "percentiles of few rounds",
    "nodes:sockets_used": "no connection came",
    "nodes:proc_used": "threads that were started",
    "nodes:load_average": "the machine",
    "nodes:disk_*": "the machine; a stalled disk is tried in tests/store",
    "nodes:fd_used*": "no file was opened",
    "nodes:mem_calculation_strategy": "how memory is measured",
    "nodes:quarantine_count": "no damage; tests/store",
    "nodes:reads_failed": "no damage; tests/store",
    "nodes:connections_refused": "no limit is reached; tests/listeners/test_limits.py",
    "nodes:direct_replies_dropped": "each is taken; tests/hostile/test_replies.py",
    "nodes:tiers*": "no stream is tiered; tests/tiers",
    "nodes:tls_handshakes*": "no TLS here; tests/hostile/test_handshake_limits.py",
    "nodes:being_drained": "no maintenance; tests/ctl/test_service.py",
    "nodes:listeners_suspended": "see being_drained",
    "nodes:service": "see being_drained",
    "nodes:overrides": "nothing is changed until the next start; tests/ctl/test_service.py",
    "nodes:db_dir": "the data directory",
    "nodes:appliance_id": "of the data directory",
    "nodes:node_id": "of the data directory",
    "nodes:hole_punching": "the file system",
    "nodes:name": "the one node",
    "nodes:no_sync": "a setting",
    "nodes:os_pid": "the process",
    "nodes:processors": "the machine",
    "nodes:running": "see being_drained",
    "nodes:sync_method*": "a setting, and measurements of few rounds",
    "nodes:type": "RabbitMQ's word for a node with a disk",
}


def may_stand(noun: str, field: str) -> bool:
    """Whether a reason is listed."""
    return any(
        fnmatchcase(field if ":" not in pattern else f"{noun}:{field}", pattern)
        for pattern in STANDING
    )


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each field of a row under its dotted name; lists are looked into without their places."""
    if isinstance(value, dict):
        if not value:
            yield path, "{}"
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        yield f"{path}[]", len(value)
        for inner in value:
            yield from leaves(inner, f"{path}[]")
    else:
        yield path, value


async def rows(client: BrokerClient) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {
        "overview": [await client.call("overview", ages=AGES)],
        "nodes": await client.call("nodes", ages=AGES),
    }
    for noun in NOUNS:
        listed = (await client.call("list", noun=noun, ages=AGES))["items"]
        found[noun] = [*listed]
        if noun in ("consumers", "bindings"):
            continue
        for row in listed:
            named = {"vhost": row.get("vhost"), "name": row["name"] or "amq.default"}
            found[noun].append(await client.call("item", noun=noun, ages=AGES, **named))
    return found


async def test_every_field_of_a_broker_under_load_moves_or_is_known_to_stand(
    make_broker: Make,
) -> None:
    broker = make_broker()
    seen: dict[str, dict[str, set[Any]]] = {}
    async with control(broker) as client:
        definition = {"max-length": 1000, "alternate-exchange": "amq.topic"}
        policy = {"vhost": "/", "name": "some", "pattern": "^(work|spread)$"}
        await client.call("policy.put", definition=definition, **policy)
        operator = {"vhost": "/", "name": "all", "pattern": "^busy$"}
        await client.call("operator-policy.put", definition={"max-length": 99999}, **operator)
        await client.call("vhost.put", name="other", description="another", tags=["a", "b"])
        with load(broker) as clients:
            for _ in range(ROUNDS):
                await look(client, clients, seen)
                if standing(seen) == {}:
                    break
    assert standing(seen) == {}
    moved = sum(len(values) > 1 for fields in seen.values() for values in fields.values())
    assert moved > 500


async def look(client: BrokerClient, clients: Load, seen: dict[str, dict[str, set[Any]]]) -> None:
    """Lets the clients work, waits for a later sample and notes the values of all fields."""
    for _ in range(3):
        clients.step()
    sampled = (await client.call("overview"))["at"]
    await until(lambda: client.call("overview"), lambda row: row["at"] > sampled + 1000)
    for noun, listed in (await rows(client)).items():
        fields = seen.setdefault(noun, {})
        for row in listed:
            for name, value in leaves(row):
                fields.setdefault(name, set()).add(value)


def standing(seen: dict[str, dict[str, set[Any]]]) -> dict[str, dict[str, set[Any]]]:
    """The fields that had one value so far, without a reason to."""
    still = {
        noun: {
            name: values
            for name, values in fields.items()
            if len(values) == 1 and not may_stand(noun, name)
        }
        for noun, fields in seen.items()
    }
    return {noun: fields for noun, fields in still.items() if fields}

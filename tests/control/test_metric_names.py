"""Names and labels that dashboards ask for, on the pages of a broker under load."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.appliance import Appliance
from tests.conftest import Make
from tests.control.loaded import load
from tests.control.test_real_broker import connect, control, until

DASHBOARDS = json.loads((Path(__file__).parent / "fixtures/dashboards.json").read_text())
"""Which metrics RabbitMQ's dashboards query at which commit; `source` says where from."""

NOT_HERE = {
    "rabbitmq_raft_": "queues of type quorum have no replicas here",
    "rabbitmq_global_stream_error_": "the stream protocol is not spoken",
    "rabbitmq_detailed_raft_": "the same",
    "erlang_": "there is no Erlang",
}
"""Beginnings of names of metrics that are left out, and why."""


def has_meaning(name: str) -> bool:
    return not name.startswith(tuple(NOT_HERE))


# The labels they select or group by; those of the node come by a join with identity_info.
LABELS = {
    "identity_info": {"rabbitmq_cluster", "rabbitmq_node", "rabbitmq_endpoint"},
    "build_info": {"rabbitmq_version", "erlang_version", "product_version",
                   "prometheus_client_version"},
    "message_size_bytes_bucket": {"le", "protocol"},
    "global_consumers": {"protocol"},
    "global_publishers": {"protocol"},
    "global_messages_received_total": {"protocol"},
    "global_messages_confirmed_total": {"protocol"},
    "global_messages_delivered_total": {"protocol", "queue_type"},
    "global_messages_acknowledged_total": {"protocol", "queue_type"},
    "global_messages_dead_lettered_maxlen_total": {"queue_type", "dead_letter_strategy"},
    "global_messages_dead_lettered_expired_total": {"queue_type", "dead_letter_strategy"},
    "global_messages_dead_lettered_rejected_total": {"queue_type", "dead_letter_strategy"},
    "global_messages_dead_lettered_delivery_limit_total": {"queue_type", "dead_letter_strategy"},
}  # fmt: skip

# What stands for all queues on `/metrics`, and for each on `/metrics/per-object`.
WALKED = {
    "queue_messages_published_total": "queue_messages_published_total",
    "global_messages_delivered_consume_manual_ack_total": "queue_messages_delivered_ack_total",
    "global_messages_delivered_consume_auto_ack_total": "queue_messages_delivered_total",
    "global_messages_delivered_get_manual_ack_total": "queue_get_ack_total",
    "global_messages_delivered_get_auto_ack_total": "queue_get_total",
    "global_messages_get_empty_total": "queue_get_empty_total",
    "global_messages_redelivered_total": "queue_messages_redelivered_total",
    "global_messages_acknowledged_total": "queue_messages_acked_total",
    "global_messages_refused_total": "queue_messages_refused_total",
}

# RabbitMQ's families at those revisions, and their metrics that have a meaning here.
FAMILIES = {
    "queue_coarse_metrics": "queue_messages_ready queue_messages_unacked queue_messages",
    "queue_consumer_count": "queue_consumers",
    "queue_metrics": "queue_consumers queue_consumer_capacity queue_consumer_utilisation "
    "queue_process_memory_bytes queue_messages_ram queue_messages_ram_bytes "
    "queue_messages_ready_ram queue_messages_unacked_ram queue_messages_persistent "
    "queue_messages_persistent_bytes queue_messages_bytes queue_messages_ready_bytes "
    "queue_messages_unacked_bytes queue_head_message_timestamp",
    "queue_delivery_metrics": "queue_get_ack_total queue_get_total "
    "queue_messages_delivered_ack_total queue_messages_delivered_total "
    "queue_messages_redelivered_total queue_messages_acked_total queue_get_empty_total",
    "exchange_metrics": "exchange_messages_published_total",
    "channel_metrics": "channel_consumers channel_messages_unacked channel_messages_unconfirmed "
    "channel_messages_uncommitted channel_acks_uncommitted consumer_prefetch channel_prefetch",
    "channel_exchange_metrics": "channel_messages_published_total "
    "channel_messages_confirmed_total channel_messages_unroutable_returned_total "
    "channel_messages_unroutable_dropped_total",
    "channel_queue_metrics": "channel_get_ack_total channel_get_total "
    "channel_messages_delivered_ack_total channel_messages_delivered_total "
    "channel_messages_redelivered_total channel_messages_acked_total channel_get_empty_total",
    "connection_coarse_metrics": "connection_incoming_bytes_total connection_outgoing_bytes_total",
    "connection_metrics": "connection_incoming_packets_total connection_outgoing_packets_total "
    "connection_channels",
}

Samples = dict[str, list[tuple[dict[str, str], float]]]


def raw_page(broker: Appliance, path: str) -> str:
    return httpx.get(f"http://{broker.host}:{broker.metrics_port}{path}", timeout=30).text


def page(broker: Appliance, path: str) -> Samples:
    text = raw_page(broker, path)
    found: Samples = {}
    families = [family.name for family in text_string_to_metric_families(text)]
    assert len(families) == len(set(families)), "a metric has one head"
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def status(broker: Appliance, path: str) -> int:
    return httpx.get(f"http://{broker.host}:{broker.metrics_port}{path}", timeout=60).status_code


def value(found: Samples, name: str, **labels: str) -> float:
    """The one sample with these labels."""
    values = [each for have, each in found[name] if labels.items() <= have.items()]
    assert len(values) == 1, (name, labels, found[name])
    return values[0]


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    """One broker for the tests here: others declare queues of the same names otherwise."""
    appliance = Appliance("broker", tmp_path_factory.mktemp("metrics"))
    yield appliance.start()
    appliance.close()


@pytest.fixture
def loaded(make_broker: Make) -> Appliance:
    return make_broker()


async def sampled(broker: Appliance) -> None:
    """Until all that happened so far is in the totals."""
    async with control(broker) as client:
        at = (await client.call("overview"))["at"]
        await until(lambda: client.call("overview"), lambda row: row["at"] > at + 1000)


def test_the_dashboards_are_those_of_each_revision() -> None:
    """The lists are the dashboards' own: they differ, and most of what they name has a meaning."""
    revisions = {each["revision"]: each["dashboards"] for each in DASHBOARDS["revisions"]}
    assert len({each["commit"] for each in DASHBOARDS["revisions"]}) == len(revisions) == 11
    overview = [set(each["RabbitMQ-Overview"].split()) for each in revisions.values()]
    assert len(set(map(frozenset, overview))) >= 6
    assert all(len(list(filter(has_meaning, names))) >= 33 for names in overview)
    # As the revisions say of themselves: 3.8 counts by channel, 3.10 and later for the node.
    old, new = revisions["v3.8.34"]["RabbitMQ-Overview"], revisions["v3.10.8"]["RabbitMQ-Overview"]
    assert "rabbitmq_channel_messages_published_total" in old.split()
    assert "rabbitmq_global_messages_received_total" in new.split()


async def test_every_name_and_label_that_dashboards_use_is_there(loaded: Appliance) -> None:
    with load(loaded) as clients:
        for _ in range(4):
            clients.step()
        await sampled(loaded)
        found = page(loaded, "/metrics")
        for revision in DASHBOARDS["revisions"]:
            for dashboard, names in revision["dashboards"].items():
                missing = [
                    name for name in names.split() if has_meaning(name) and name not in found
                ]
                assert missing == [], (revision["revision"], dashboard)
        for name, labels in LABELS.items():
            assert all(labels == have.keys() for have, _ in found[f"rabbitmq_{name}"]) or (
                name in ("identity_info", "build_info")
                and labels <= found[f"rabbitmq_{name}"][0][0].keys()
            ), name
        sizes = value(found, "rabbitmq_message_size_bytes_count")
        assert sizes == value(found, "rabbitmq_message_size_bytes_bucket", le="+Inf")
        assert sizes >= value(found, "rabbitmq_global_messages_received_total") > 0
        for name in ("disk_sync_seconds", "confirm_seconds"):
            assert value(found, f"rabbitmq_{name}_count") > 0
            assert value(found, f"rabbitmq_{name}_sum") > 0


async def test_types_of_queues_and_reasons_are_told_apart(loaded: Appliance) -> None:
    with load(loaded) as clients:
        for _ in range(4):
            clients.step()
        clients.connections[1].process_data_events(0.1)
        before = page(loaded, "/metrics")
        found = page(loaded, "/metrics/per-object")
    name = "rabbitmq_global_messages_delivered_consume_manual_ack_total"
    for kind in ("rabbit_classic_queue", "rabbit_stream_queue"):
        assert value(before, name, queue_type=kind) > 0
    name = "rabbitmq_global_messages_delivered_get_manual_ack_total"
    assert value(before, name, queue_type="rabbit_quorum_queue") > 0
    for reason, queue in (
        ("expired", "expires"),
        ("maxlen", "drops"),
    ):
        name = f"rabbitmq_global_messages_dead_lettered_{reason}_total"
        labels = {
            "queue_type": "rabbit_classic_queue",
            "dead_letter_strategy": "at_least_once",
        }
        count = value(before, name, **labels)
        assert count > 0
        name = "rabbitmq_queue_messages_removed_total"
        assert value(found, name, queue=queue, reason=reason, dead_lettered="true") == count
    name = "rabbitmq_global_messages_dead_lettered_delivery_limit_total"
    labels = {"queue_type": "rabbit_quorum_queue", "dead_letter_strategy": "disabled"}
    assert value(before, name, **labels) > 0
    assert value(found, "rabbitmq_queue_messages_refused_total", queue="full", reason="maxlen") == 2
    assert value(before, "rabbitmq_global_messages_nacked_total") == 2
    # Two are there at any time, whatever has gone.
    loaded_queue = {"queue": "limited", "queue_type": "rabbit_quorum_queue"}
    assert value(found, "rabbitmq_queue_info", **loaded_queue) == 1
    after = page(loaded, "/metrics")
    for name, samples in before.items():
        if name.endswith("_total"):
            assert sum(each for _, each in after[name]) >= sum(each for _, each in samples), name


def totals(broker: Appliance) -> tuple[dict[str, float], dict[str, float]]:
    """What `/metrics` says of all queues, and the same added up from the lines of each queue."""
    whole, single = page(broker, "/metrics"), page(broker, "/metrics/per-object")

    def total(found: Samples, name: str, **labels: str) -> float:
        rows = found.get(f"rabbitmq_{name}", ())
        return sum(each for have, each in rows if labels.items() <= have.items())

    said = {name: total(whole, name) for name in WALKED}
    walked = {name: total(single, other) for name, other in WALKED.items()}
    for reason in ("expired", "rejected", "maxlen", "delivery_limit"):
        name = f"global_messages_dead_lettered_{reason}_total"
        said[name] = total(whole, name)
        walked[name] = total(single, "queue_messages_removed_total", reason=reason)
    return said, walked


async def test_sums_are_those_of_single_queues_while_these_change_and_go(
    loaded: Appliance,
) -> None:
    async def equal(gone: dict[str, float]) -> dict[str, float]:
        # Messages expire between two pages.
        async def difference() -> tuple[dict[str, float], dict[str, float]]:
            said, walked = totals(loaded)
            return said, {name: value + gone.get(name, 0) for name, value in walked.items()}

        said, _ = await until(difference, lambda found: found[0] == found[1])
        return said

    with load(loaded) as clients:
        before: dict[str, float] = {}
        for _ in range(3):
            clients.step()
            clients.connections[1].process_data_events(0)
            said = await equal({})
            assert said != before
            before = said
        walked = totals(loaded)[1]
        for queue in ("busy", "full", "drops", "limited", "log"):
            clients.plain.queue_delete(queue)
        left = totals(loaded)[1]
        gone = {name: walked[name] - left[name] for name in walked}
        assert all(gone[name] > 0 for name in ("global_messages_refused_total",
                   "global_messages_dead_lettered_maxlen_total",
                   "global_messages_dead_lettered_delivery_limit_total",
                   "global_messages_acknowledged_total"))  # fmt: skip
        assert await equal(gone) == before
        assert min(before.values()) > 0


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_family_alone_has_its_metrics_and_no_others(
    own_broker: Appliance, family: str
) -> None:
    names = FAMILIES[family].split()
    with load(own_broker) as clients:
        clients.step()
        found = page(own_broker, f"/metrics/detailed?family={family}&vhost=/")
        elsewhere = page(own_broker, f"/metrics/detailed?family={family}&vhost=nowhere")
        clients.plain.exchange_delete("spread")
        for name in ("work", "busy", "limited", "log"):
            clients.plain.queue_delete(name)
    missing = [name for name in names if f"rabbitmq_detailed_{name}" not in found]
    assert missing == []
    others = {"queue_info", "queue_disk_bytes", "queue_segments", "queue_messages_published_total",
              "exchange_messages_published_in_total", "exchange_messages_published_out_total",
              "exchange_messages_unroutable_total", "channel_messages_nacked_total",
              "connection_pending_bytes", "queue_messages_removed_total",
              "queue_messages_refused_total"}  # fmt: skip
    shown = {name.removeprefix("rabbitmq_detailed_") for name in found} - {"rabbitmq_identity_info"}
    assert shown - set(names) <= others
    assert elsewhere.keys() == {"rabbitmq_identity_info"}


NODE_FAMILIES = {
    "connection_churn_metrics": "connections_opened_total connections_closed_total "
    "channels_opened_total channels_closed_total queues_declared_total queues_created_total "
    "queues_deleted_total",
    "node_coarse_metrics": "process_open_fds process_open_tcp_sockets disk_space_available_bytes "
    "process_resident_memory_bytes",
    "node_metrics": "process_max_fds process_max_tcp_sockets erlang_uptime_seconds "
    "resident_memory_limit_bytes disk_space_available_limit_bytes",
    "auth_attempt_metrics": "auth_attempts_total auth_attempts_succeeded_total "
    "auth_attempts_failed_total",
    "auth_attempt_detailed_metrics": "auth_attempts_detailed_total "
    "auth_attempts_detailed_succeeded_total auth_attempts_detailed_failed_total",
    "node_persister_metrics": "io_read_ops_total io_write_ops_total io_write_bytes_total "
    "io_sync_ops_total io_sync_time_seconds_total msg_store_read_total msg_store_write_total "
    "queue_index_read_ops_total queue_index_write_ops_total",
}

EMPTY_FAMILIES = {
    "channel_process_metrics": "channel_process_reductions_total",
    "queue_exchange_metrics": "queue_exchange_messages_published_total",
    "ra_metrics": "raft_term_total raft_log_snapshot_index raft_log_last_applied_index "
    "raft_log_commit_index raft_log_last_written_index raft_entry_commit_latency_seconds",
}


@pytest.mark.parametrize("family", NODE_FAMILIES)
async def test_a_family_of_the_node_has_its_metrics_and_no_others(
    own_broker: Appliance, family: str
) -> None:
    with load(own_broker):
        found = page(own_broker, f"/metrics/detailed?family={family}")
    shown = {name.removeprefix("rabbitmq_detailed_") for name in found} - {"rabbitmq_identity_info"}
    assert shown == set(NODE_FAMILIES[family].split())


@pytest.mark.parametrize("family", EMPTY_FAMILIES)
def test_a_family_without_figures_has_heads_alone(own_broker: Appliance, family: str) -> None:
    text = raw_page(own_broker, f"/metrics/detailed?family={family}")
    for name in EMPTY_FAMILIES[family].split():
        assert f"# TYPE rabbitmq_detailed_{name} " in text
        assert f"# HELP rabbitmq_detailed_{name} " in text
    samples = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert [line.partition("{")[0] for line in samples] == ["rabbitmq_identity_info"]


async def test_logins_are_counted_by_source(own_broker: Appliance) -> None:
    with load(own_broker):
        pass
    query = "/metrics/detailed?family=auth_attempt_detailed_metrics"
    found = page(own_broker, query)
    guest = {"username": "guest", "remote_address": "127.0.0.1", "protocol": "amqp091"}
    name = "rabbitmq_detailed_auth_attempts_detailed"
    assert value(found, f"{name}_total", **guest) >= 1
    assert value(found, f"{name}_succeeded_total", **guest) >= 1
    assert value(found, f"{name}_failed_total", **guest) == 0


async def test_the_store_is_counted(own_broker: Appliance) -> None:
    query = "/metrics/detailed?family=node_persister_metrics"
    with load(own_broker) as clients:
        before = page(own_broker, query)
        clients.step()
        after = page(own_broker, query)
    for name in ("io_sync_ops_total", "io_write_bytes_total", "io_sync_time_seconds_total"):
        full = f"rabbitmq_detailed_{name}"
        assert value(after, full) > value(before, full)


async def test_publishes_are_counted_by_channel_queue_and_exchange(own_broker: Appliance) -> None:
    connection = connect(own_broker)
    channel = connection.channel()
    channel.queue_declare("routed")
    channel.queue_bind("routed", "amq.topic", "a.*")
    channel.confirm_delivery()
    for _ in range(3):
        channel.basic_publish("amq.topic", "a.b", b"x")
    channel.basic_publish("", "routed", b"x")
    query = "/metrics/detailed?family=channel_queue_exchange_metrics&vhost=/"
    found = page(own_broker, query)
    name = "rabbitmq_detailed_queue_messages_published_total"
    where = {"queue_vhost": "/", "queue": "routed", "exchange_vhost": "/"}
    assert value(found, name, **where, exchange="amq.topic") == 3
    assert value(found, name, **where, exchange="") == 1
    assert name not in page(own_broker, f"{query}&queue=^no.such")
    channel.queue_delete("routed")
    connection.close()


async def test_the_slowest_reader_of_a_stream_is_shown(own_broker: Appliance) -> None:
    connection = connect(own_broker)
    channel = connection.channel()
    channel.queue_declare("far", durable=True, arguments={"x-queue-type": "stream"})
    channel.confirm_delivery()
    for _ in range(20):
        channel.basic_publish("", "far", b"x")
    query = "/metrics/detailed?family=stream_consumer_metrics"
    name = "rabbitmq_detailed_stream_consumer_max_offset_lag"
    assert name not in page(own_broker, query), "nobody reads it"
    channel.basic_qos(prefetch_count=5)
    channel.basic_consume("far", lambda *_: None, arguments={"x-stream-offset": "first"})
    assert value(page(own_broker, query), name, vhost="/", queue="far") == 15
    channel.queue_delete("far")
    connection.close()


async def test_names_of_queues_filter_a_family_and_a_bad_expression_is_refused(
    own_broker: Appliance,
) -> None:
    with load(own_broker):
        found = page(own_broker, "/metrics/detailed?family=queue_coarse_metrics&queue=^i.le$")
        labels = [have for have, _ in found["rabbitmq_detailed_queue_messages"]]
        assert {each["queue"] for each in labels} == {"idle"}
        assert status(own_broker, "/metrics/detailed?family=queue_metrics&queue=(") == 400
        query = "family=vhost_status&family=exchange_names,exchange_bindings&vhost=/"
        found = page(own_broker, f"/metrics/detailed?{query}")
        assert value(found, "rabbitmq_cluster_vhost_status", vhost="/") == 1
        assert value(found, "rabbitmq_cluster_exchange_bindings", exchange="spread") >= 4


def test_the_memory_of_the_process_is_broken_down(own_broker: Appliance) -> None:
    with load(own_broker) as clients:
        clients.step()
        found = page(own_broker, "/metrics/memory-breakdown")
    assert value(found, "rabbitmq_memory_classic_queue_erlang_process_bytes") > 0
    assert value(found, "rabbitmq_memory_other_system_bytes") > 1_000_000

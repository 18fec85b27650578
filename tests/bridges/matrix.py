"""Which tests show what each key of shovels and upstreams does: `python -m tests.bridges.matrix`
prints it as a table, and `test_keys.py` checks that it is whole."""

from __future__ import annotations

MOVING, REFUSED, WEB = "test_moving.py", "test_refused.py", "test_web.py"
FAULTS, KEYS, TLS = "test_faults.py", "test_keys.py", "test_tls.py"
EXCHANGES, QUEUES = "test_federated_exchanges.py", "test_federated_queues.py"

SHOVELS: dict[str, tuple[tuple[str, str], ...]] = {
    "src-uri": (
        (MOVING, "test_of_several_addresses_the_next_is_tried"),
        (TLS, "test_a_shovel_publishes_to_a_broker_whose_certificate_it_believes"),
    ),
    "src-protocol": ((KEYS, "test_local_is_this_broker_and_amqp10_is_stored_and_does_not_run"),),
    "src-queue": ((MOVING, "test_it_moves_what_is_there_and_what_comes"),),
    "src-queue-args": ((KEYS, "test_queues_that_are_not_there_are_declared_with_their_arguments"),),
    "src-exchange": ((MOVING, "test_it_moves_from_an_exchange_to_an_exchange"),),
    "src-exchange-key": ((MOVING, "test_it_moves_from_an_exchange_to_an_exchange"),),
    "src-consumer-args": (
        (KEYS, "test_consumer_arguments_reach_the_source"),
        ("test_streams.py", "test_it_goes_on_behind_what_it_has_moved"),
    ),
    "src-prefetch-count": ((KEYS, "test_no_more_is_under_way_than_the_prefetch"),),
    "src-delete-after": (
        (MOVING, "test_it_ends_when_so_many_are_moved_and_takes_no_more"),
        (MOVING, "test_it_ends_with_what_was_in_the_queue"),
    ),
    "src-predeclared": ((KEYS, "test_a_source_that_must_exist_is_not_declared"),),
    "dest-uri": (
        (MOVING, "test_of_several_addresses_the_next_is_tried"),
        (WEB, "test_each_message_is_a_request"),
    ),
    "dest-protocol": ((KEYS, "test_local_is_this_broker_and_amqp10_is_stored_and_does_not_run"),),
    "dest-queue": ((MOVING, "test_it_moves_what_is_there_and_what_comes"),),
    "dest-queue-args": (
        (KEYS, "test_queues_that_are_not_there_are_declared_with_their_arguments"),
    ),
    "dest-exchange": (
        (MOVING, "test_it_moves_from_an_exchange_to_an_exchange"),
        (MOVING, "test_without_a_target_each_message_keeps_its_exchange_and_key"),
    ),
    "dest-exchange-key": ((MOVING, "test_it_moves_from_an_exchange_to_an_exchange"),),
    "dest-predeclared": ((MOVING, "test_a_queue_that_must_exist_is_not_declared"),),
    "dest-add-forward-headers": ((MOVING, "test_it_adds_headers_and_properties"),),
    "dest-add-timestamp-header": ((MOVING, "test_it_adds_headers_and_properties"),),
    "dest-publish-properties": ((MOVING, "test_it_adds_headers_and_properties"),),
    "ack-mode": ((MOVING, "test_it_acknowledges_in_each_of_three_ways"),),
    "reconnect-delay": (
        (FAULTS, "test_zero_as_reconnect_delay_stops_it_at_the_first_failure"),
        (KEYS, "test_the_next_try_comes_after_the_reconnect_delay"),
    ),
    "on-refused": (
        (REFUSED, "test_what_a_full_queue_refuses_is_held_until_there_is_room"),
        (REFUSED, "test_an_exchange_without_queues_drops_and_counts"),
        (REFUSED, "test_refused_messages_go_to_the_dead_letter_exchange_of_the_source"),
    ),
    "dead-letter-queue": (
        (REFUSED, "test_refused_messages_go_to_the_queue_that_the_shovel_names"),
    ),
    "dest-concurrency": ((WEB, "test_several_requests_run_at_once_where_that_is_asked_for"),),
    "dest-timeout": ((WEB, "test_what_may_pass_is_sent_again_with_the_same_key"),),
    "dest-cacertfile": ((TLS, "test_https_goes_to_a_server_whose_certificate_is_believed"),),
    "dest-headers": ((WEB, "test_each_message_is_a_request"),),
    "dest-signature-secret": ((WEB, "test_each_message_is_a_request"),),
}
FORMER: dict[str, tuple[tuple[str, str], ...]] = dict.fromkeys(
    (
        "prefetch-count",
        "delete-after",
        "add-forward-headers",
        "add-timestamp-header",
        "publish-properties",
    ),
    (("test_rights.py", "test_former_names_of_keys_are_understood"),),
)
UPSTREAMS: dict[str, tuple[tuple[str, str], ...]] = {
    "uri": (
        (KEYS, "test_a_link_tries_the_next_of_several_uris"),
        (TLS, "test_a_link_takes_messages_from_an_upstream_whose_certificate_it_believes"),
    ),
    "prefetch-count": ((QUEUES, "test_it_takes_no_more_than_a_slow_consumer_and_the_prefetch"),),
    "reconnect-delay": ((KEYS, "test_the_next_try_of_a_link_comes_after_the_reconnect_delay"),),
    "ack-mode": ((EXCHANGES, "test_it_acknowledges_in_other_ways"),),
    "trust-user-id": ((EXCHANGES, "test_a_user_id_is_removed_unless_it_is_trusted"),),
    "exchange": ((EXCHANGES, "test_the_exchange_of_the_upstream_may_have_another_name"),),
    "max-hops": (
        ("test_federation_ring.py", "test_each_message_reaches_each_broker_once"),
        ("test_federation_headers.py", "test_a_message_goes_so_far_and_nowhere_twice"),
    ),
    "expires": ((KEYS, "test_the_queue_of_a_link_has_the_arguments_of_the_upstream"),),
    "message-ttl": ((KEYS, "test_the_queue_of_a_link_has_the_arguments_of_the_upstream"),),
    "ha-policy": ((KEYS, "test_the_queue_of_a_link_has_the_arguments_of_the_upstream"),),
    "queue-type": ((KEYS, "test_the_queue_of_a_link_has_the_arguments_of_the_upstream"),),
    "bind-nowait": ((KEYS, "test_bindings_follow_without_waiting_for_answers"),),
    "channel-use-mode": (
        (EXCHANGES, "test_it_acknowledges_in_other_ways"),
        (KEYS, "test_bindings_follow_without_waiting_for_answers"),
    ),
    "resource-cleanup-mode": (
        (EXCHANGES, "test_with_never_the_queue_stays_and_collects"),
        (EXCHANGES, "test_the_end_of_a_link_takes_its_queue_at_the_upstream_along"),
    ),
    "queue": ((KEYS, "test_a_link_consumes_from_the_queue_and_with_the_tag_that_are_named"),),
    "consumer-tag": (
        (KEYS, "test_a_link_consumes_from_the_queue_and_with_the_tag_that_are_named"),
    ),
}


def table() -> str:
    """All of it, as Markdown."""
    lines = ["| Key | Shown by |", "| --- | --- |"]
    for what, rows in (("shovel", SHOVELS), ("shovel", FORMER), ("upstream", UPSTREAMS)):
        for key, tests in rows.items():
            named = "<br>".join(f"{file}::{test}" for file, test in tests)
            lines.append(f"| {what} `{key}` | {named} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())

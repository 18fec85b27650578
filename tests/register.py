"""Which test shows what each argument, exchange type, header and policy key does.

`tests/tidy/test_register.py` compares the names with the broker's tables and looks the tests up.
The values that are refused are tables of their own: `tests/amqp/bad_values.py` and
`tests/control/policy_values.py`.
"""

from __future__ import annotations

_AMQP = "tests/amqp/test_"
_HISTORY = "tests/control/test_message_history.py::test_"
_POLICIES = "tests/control/test_policy_keys.py::test_it_"
_STREAMS = f"{_AMQP}streams.py::test_it_"
_TIERS = "tests/tiers/test_tiers.py::test_"
_FILTERED = f"{_AMQP}streams_filtered.py::test_it_"
_KEPT = f"{_AMQP}streams_kept.py::test_it_"
_SPREADING = f"{_AMQP}spreading_exchanges.py::test_a_"
_DUPLICATES = f"{_AMQP}deduplication.py::test_"
_ANY_QUEUE = f"{_AMQP}arguments.py::test_it_takes_any_value_of_a_queue_argument_without_meaning"
_ANY_CONSUMER = (
    f"{_AMQP}arguments.py::test_it_takes_any_value_of_a_consumer_argument_without_meaning"
)

BEHAVIOUR: dict[str, dict[str, str]] = {
    "queue": {
        "x-message-ttl": f"{_AMQP}expiry.py::"
        "test_messages_expire_after_the_queues_ttl_and_not_before",
        "x-expires": f"{_AMQP}expiry.py::test_an_unused_queue_expires",
        "x-max-length": f"{_AMQP}length_limits.py::test_the_oldest_messages_make_room",
        "x-max-length-bytes": f"{_AMQP}length_limits.py::"
        "test_the_oldest_messages_make_room_by_bytes",
        "x-overflow": f"{_AMQP}length_limits.py::"
        "test_a_full_queue_refuses_new_messages_when_told_so",
        "x-dead-letter-exchange": f"{_AMQP}dead_letters.py::"
        "test_it_moves_a_rejected_message_and_says_what_happened",
        "x-dead-letter-routing-key": f"{_AMQP}dead_letters.py::"
        "test_it_uses_the_dead_letter_routing_key_and_then_drops_cc",
        "x-delivery-limit": f"{_AMQP}delivery_limit.py::"
        "test_it_counts_returns_and_gives_up_at_the_limit",
        "x-consumer-timeout": f"{_AMQP}consumer_timeouts.py::"
        "test_a_delivery_left_unacked_closes_its_channel_and_comes_back",
        "x-single-active-consumer": f"{_AMQP}single_active_consumer.py::"
        "test_one_consumer_at_a_time_is_active",
        "x-max-priority": f"{_AMQP}priorities.py::"
        "test_higher_priorities_come_first_and_equal_ones_in_order",
        "x-message-deduplication": f"{_DUPLICATES}"
        "a_queue_drops_what_has_an_id_that_came_before_and_confirms_it",
        "x-cache-size": f"{_DUPLICATES}the_oldest_id_is_forgotten_first",
        "x-cache-ttl": f"{_DUPLICATES}ids_are_forgotten_after_their_time",
        "x-deduplication-header": f"{_DUPLICATES}the_id_may_be_in_another_header",
        "x-max-age": f"{_KEPT}drops_what_is_too_old",
        "x-stream-max-segment-size-bytes": f"{_STREAMS}reads_segments_that_are_sealed",
        "x-stream-tier": f"{_TIERS}"
        "all_but_the_last_segment_leave_the_disk_and_every_offset_is_read",
        "x-stream-local-max-bytes": f"{_TIERS}as_much_stays_on_this_disk_as_the_stream_says",
        "x-stream-local-max-age": f"{_TIERS}what_is_old_leaves_this_disk",
        "x-stream-filter-size-bytes": f"{_AMQP}arguments.py::"
        "test_it_takes_the_size_of_a_streams_filter",
        "x-stream-index": "tests/control/test_stream_index.py::"
        "test_it_finds_a_message_by_each_of_its_keys",
        "x-confirm-on": f"{_AMQP}confirm_on_ack.py::test_it_acks_when_the_consumer_acked",
        "x-queue-type": f"{_AMQP}delivery_limit.py::"
        "test_it_takes_a_quorum_queue_as_a_durable_one_with_a_limit_of_20",
        "x-initial-cluster-size": _ANY_QUEUE,
        "x-queue-mode": _ANY_QUEUE,
        "x-queue-version": _ANY_QUEUE,
        "x-quorum-initial-group-size": _ANY_QUEUE,
        "x-quorum-target-group-size": _ANY_QUEUE,
        "x-dead-letter-strategy": _ANY_QUEUE,
        "x-queue-leader-locator": _ANY_QUEUE,
        "x-queue-master-locator": _ANY_QUEUE,
    },
    "exchange": {
        "alternate-exchange": f"{_AMQP}exchanges.py::"
        "test_what_reaches_no_queue_goes_to_the_alternate_exchange",
        "x-alternate-exchange": f"{_AMQP}exchanges.py::"
        "test_what_reaches_no_queue_goes_to_the_alternate_exchange",
        "x-delayed-type": f"{_AMQP}delayed.py::test_any_type_may_route",
        "x-delayed-exchange": f"{_AMQP}delayed.py::test_any_exchange_is_delayed_by_argument",
        "x-message-deduplication": f"{_DUPLICATES}an_exchange_drops_duplicates_for_all_its_queues",
        "x-cache-size": f"{_DUPLICATES}the_exchange_reads_its_own_arguments",
        "x-cache-ttl": f"{_DUPLICATES}the_exchange_reads_its_own_arguments",
        "x-deduplication-header": f"{_DUPLICATES}the_exchange_reads_its_own_arguments",
        "hash-header": f"{_SPREADING}consistent_hash_can_look_at_a_header",
        "x-hash-on": f"{_SPREADING}consistent_hash_can_look_at_a_header",
        "hash-property": f"{_SPREADING}consistent_hash_can_look_at_a_property",
        "x-algorithm": f"{_SPREADING}consistent_hash_spreads_by_weight",
    },
    "consumer": {
        "x-priority": f"{_AMQP}consuming.py::test_a_consumer_of_higher_priority_is_served_first",
        "x-stream-offset": f"{_STREAMS}begins_where_a_consumer_asks",
        "x-stream-automatic-offset-tracking": f"{_KEPT}keeps_a_consumers_place",
        "x-stream-filter": f"{_FILTERED}gives_what_is_wanted",
        "x-filter-match-type": f"{_FILTERED}gives_what_is_wanted",
        "x-stream-match-unfiltered": f"{_FILTERED}gives_what_is_wanted",
        "x-cancel-on-ha-failover": _ANY_CONSUMER,
    },
    "binding": {
        "x-match": f"{_AMQP}exchanges.py::test_a_headers_exchange_matches_arguments",
    },
    "message": {
        "CC": f"{_AMQP}exchanges.py::test_a_message_goes_to_the_keys_of_its_cc_and_bcc",
        "BCC": f"{_AMQP}exchanges.py::test_a_message_goes_to_the_keys_of_its_cc_and_bcc",
        "x-delay": f"{_AMQP}delayed.py::test_it_holds_a_message_back_and_never_delivers_early",
        "x-stream-filter-value": f"{_FILTERED}gives_what_is_wanted",
        "x-death": f"{_AMQP}dead_letters.py::"
        "test_it_counts_deaths_of_the_same_kind_and_keeps_the_first",
        "x-deduplication-header": f"{_DUPLICATES}texts_bytes_and_integers_are_ids",
        "x-cache-ttl": f"{_DUPLICATES}a_message_may_say_how_long_its_id_is_remembered",
    },
    "exchange type": {
        "direct": f"{_AMQP}exchanges.py::test_a_direct_exchange_reaches_equal_keys",
        "fanout": f"{_AMQP}exchanges.py::test_a_fanout_exchange_reaches_every_queue_once",
        "topic": f"{_AMQP}exchanges.py::test_a_topic_exchange_matches_words",
        "headers": f"{_AMQP}exchanges.py::test_a_headers_exchange_matches_arguments",
        "x-consistent-hash": f"{_SPREADING}consistent_hash_sends_a_key_to_one_queue_always",
        "x-random": f"{_SPREADING}random_exchange_gives_each_message_to_one_queue",
        "x-delayed-message": f"{_AMQP}delayed.py::"
        "test_it_holds_a_message_back_and_never_delivers_early",
    },
    "policy key": {
        "max-length": f"{_POLICIES}drops_heads_that_a_new_length_does_not_let_stay",
        "max-length-bytes": f"{_POLICIES}drops_heads_that_a_new_size_does_not_let_stay",
        "overflow": f"{_POLICIES}refuses_instead_where_overflow_says_so",
        "message-ttl": f"{_POLICIES}expires_messages_that_are_there",
        "expires": f"{_POLICIES}deletes_unused_queues_and_starts_the_time_anew",
        "dead-letter-exchange": f"{_POLICIES}dead_letters_what_a_new_limit_does_not_let_stay",
        "dead-letter-routing-key": f"{_POLICIES}dead_letters_what_a_new_limit_does_not_let_stay",
        "delivery-limit": f"{_POLICIES}limits_how_often_a_message_comes_back",
        "consumer-timeout": f"{_AMQP}consumer_timeouts.py::"
        "test_a_policy_sets_the_timeout_of_consumers_that_are_there",
        "confirm-on": f"{_POLICIES}confirms_when_the_policy_says",
        "max-age": f"{_POLICIES}drops_what_a_new_age_does_not_let_stay",
        "stream-index": "tests/control/test_stream_index.py::"
        "test_a_policy_indexes_what_is_there_already",
        "stream-tier": f"{_TIERS}a_policy_turns_tiers_on_and_off",
        "stream-local-max-bytes": f"{_TIERS}a_policy_turns_tiers_on_and_off",
        "stream-local-max-age": f"{_TIERS}what_is_old_leaves_this_disk",
        "stream-max-segment-size-bytes": f"{_POLICIES}begins_segments_at_the_size_of_the_policy",
        "history": f"{_HISTORY}it_records_what_is_published_with_headers_that_tell_what_came_of_it",
        "history-keys": f"{_HISTORY}records_are_found_by_the_keys_of_all_policies_together",
        "history-events": "tests/control/test_message_events.py::"
        "test_a_message_that_is_consumed_and_acked_says_by_whom",
        "history-retention": f"{_HISTORY}the_longest_retention_of_all_policies_holds",
        "alternate-exchange": f"{_POLICIES}routes_through_an_alternate_exchange_at_once",
        "delayed-message": f"{_POLICIES}holds_messages_back_while_a_policy_says_so",
        # Keys of rule `none` share one: it is named for each of them.
    },
}

WITHOUT_EFFECT = f"{_POLICIES}keeps_and_shows_a_key_without_effect"

# Values that are refused, or left alone, where it takes more than a table to show.
BAD_VALUE: dict[str, dict[str, str]] = {
    "message": {
        "CC": f"{_AMQP}arguments.py::test_it_refuses_copies_to_what_is_no_array",
        "BCC": f"{_AMQP}arguments.py::test_it_refuses_copies_to_what_is_no_array",
        "x-delay": f"{_AMQP}delayed.py::test_it_routes_at_once_what_asks_for_no_delay",
        "x-stream-filter-value": f"{_FILTERED}gives_what_is_wanted",
        "x-death": f"{_AMQP}arguments.py::"
        "test_it_begins_a_new_history_where_the_one_it_was_sent_is_none",
        "x-deduplication-header": f"{_DUPLICATES}what_is_no_id_makes_no_duplicate",
        "x-cache-ttl": f"{_DUPLICATES}a_message_may_say_how_long_its_id_is_remembered",
    },
    "exchange type": {
        **{
            name: f"{_AMQP}arguments.py::"
            f"test_it_refuses_an_exchange_of_another_type_under_its_name[{name}]"
            for name in ("direct", "fanout", "topic", "x-random")
        },
        "headers": f"{_AMQP}arguments.py::test_it_refuses_a_binding_argument",
        "x-consistent-hash": f"{_SPREADING}consistent_hash_refuses_a_weight_that_is_none",
        "x-delayed-message": f"{_AMQP}delayed.py::test_bad_arguments_are_refused",
    },
}

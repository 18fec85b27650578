"""Every attack of `make hostile`, and the finding or the part of the programme it belongs to.

`broker` and `web` are what these processes may grow by meanwhile, in MiB, with all limits at their
defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.hostile.attacks import documents, doors, findings, objects, single_turns
from tests.hostile.attacks.attacker import Attacker


@dataclass(frozen=True)
class Attack:
    """One row; `of` is `1` to `12` for a finding, else a word for its part of the programme."""

    of: str
    carry_out: Callable[[Attacker], str]
    broker: int = 64
    web: int = 64

    @property
    def name(self) -> str:
        return self.carry_out.__name__.replace("_", "-")


ATTACKS = [
    Attack("1", findings.unread_returns),
    Attack("2", findings.slow_patterns),
    Attack("3", findings.wrong_passwords),
    Attack("4", findings.pipelining),
    Attack("5", findings.cookies),
    Attack("6", findings.topic_patterns),
    Attack("7", findings.slow_bodies),
    Attack("7", findings.bodies_without_credentials),
    Attack("7", findings.heads_without_end),
    Attack("8", findings.live_subscriptions, web=128),
    Attack("9", findings.relay_long_message),
    Attack("9", findings.relay_unfinished),
    Attack("9", findings.relay_single_bytes),
    Attack("9", findings.relay_pings),
    Attack("10", findings.foreign_names),
    Attack("11", findings.told_addresses),
    Attack("12", findings.bad_hosts),
    Attack("12", findings.deep_live_requests),
    Attack("objects", objects.bindings, broker=1024),
    Attack("objects", objects.header_bindings, broker=1536),
    # 40,000 bindings, for which `arguments_max` counts 111 MiB.
    Attack("objects", objects.header_messages, broker=128),
    Attack("objects", objects.queues, broker=512),
    Attack("objects", objects.exchanges, broker=512),
    Attack("objects", objects.channels, broker=4096),
    Attack("objects", objects.consumers, broker=1024),
    # Of these 100,000 queues alone take 193 MiB, as in the row `queues`.
    Attack("objects", objects.policies, broker=384),
    Attack("objects", objects.headers_in_policies),
    Attack("objects", objects.stream_tags),
    Attack("objects", objects.stream_filters),
    Attack("definitions", documents.deep_definitions),
    Attack("definitions", documents.deep_arguments),
    Attack("definitions", documents.wide_arguments, broker=256, web=256),
    Attack("definitions", documents.wide_rows, broker=256),
    Attack("definitions", documents.long_texts, broker=256),
    Attack("definitions", documents.long_settings, broker=256),
    Attack("definitions", documents.huge_numbers),
    Attack("definitions", documents.huge_names),
    Attack("definitions", documents.duplicate_rows, broker=256),
    Attack("definitions", documents.duplicate_keys),
    Attack("definitions", documents.wide_import, broker=1024, web=256),
    Attack("reports", documents.report_runs),
    Attack("reports", documents.report_runs_differing),
    Attack("reports", documents.report_pages),
    Attack("PROXY", doors.proxy_lies),
    Attack("TLS", doors.certificates),
    Attack("TLS", doors.silent_handshakes, broker=128, web=128),
    Attack("TLS", doors.slow_handshakes),
    Attack("TLS", doors.whole_handshakes),
    Attack("WebSocket", doors.deflate_bombs),
    Attack("WebSocket", doors.ping_floods),
    Attack("WebSocket", doors.fragments_after_login),
    Attack("WebSocket", doors.unfinished_messages, broker=512),
    Attack("WebSocket", doors.live_unfinished),
    Attack("tickets", doors.tickets_twice),
    Attack("reply-to", doors.replies_to_others),
    Attack("one turn", single_turns.ack_of_a_million, broker=256),
    Attack("one turn", single_turns.nack_of_a_million, broker=256),
    Attack("one turn", single_turns.purge_of_a_million, broker=256),
    # 100,000 queues and bindings, which by the rows `queues` and `bindings` may take 307 MiB, and
    # for each queue that has had a message a store, a tail and the figures of its rates: 3.7 KiB.
    Attack("one turn", single_turns.fanout, broker=768),
    Attack("one turn", single_turns.wide_dead_letters, broker=768),
    Attack("one turn", single_turns.wide_refusals, broker=768),
    Attack("one turn", single_turns.wide_transfers, broker=768),
    Attack("one turn", single_turns.carbon_copies, broker=192),  # 30,000 queues, and tail_memory
    Attack("one turn", single_turns.large_commit, broker=256),
    Attack("one turn", single_turns.large_messages, broker=512),
    Attack("one turn", single_turns.large_records, broker=640),
    Attack("one turn", single_turns.large_answers, broker=512, web=128),
    Attack("one turn", single_turns.largest_tables),
]
BY_NAME = {attack.name: attack for attack in ATTACKS}

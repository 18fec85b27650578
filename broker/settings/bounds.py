"""Limits that keep one client from taking what belongs to all: those that the settings say, and
those that cannot be set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from broker.process.logs import ENTRIES_KEPT
from broker.settings.config import Config


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the settings say for queues and exchanges. Sizes are bytes."""

    stream_filter_values: int
    stream_filter_bytes: int
    stream_offsets: int
    refused_backlog: int
    delayed_cancelled: int
    hash_ring_weights: int
    topic_visits: int
    headers_comparisons: int
    queues: int
    exchanges: int
    bindings: int
    arguments: int
    policies: int
    policy_steps: int
    parameters: int


def bounds_of(config: Config) -> Bounds:
    """The bounds that are in force from the start on."""
    return Bounds(
        stream_filter_values=config.stream_filter_values_max,
        stream_filter_bytes=config.stream_filter_bytes_max,
        stream_offsets=config.stream_offsets_max,
        refused_backlog=config.refused_backlog_max,
        delayed_cancelled=config.delayed_cancelled_max,
        hash_ring_weights=config.hash_ring_weights_max,
        topic_visits=config.topic_visits_max,
        headers_comparisons=config.headers_comparisons_max,
        queues=config.queues_max,
        exchanges=config.exchanges_max,
        bindings=config.bindings_max,
        arguments=config.arguments_max,
        policies=config.policies_max,
        policy_steps=config.policy_steps_max,
        parameters=config.parameters_max,
    )


DEFAULTS = bounds_of(Config())

NESTING_MAX = 32
TABLE_VALUES_MAX = 65_536
PUBLISHED_VALUES_MAX = 64_512
BODY_VALUES_MAX = 8_192
ROW_BYTES_MAX = 1024 * 1024
PATTERN_CHARACTERS_MAX = 4_096
PATTERN_STEPS_MAX = 1_500
PATTERN_MEMORY_MAX = 128 * 1024
PATTERNS_KEPT_MAX = 128
POLICY_WAIT_S = 10
RING_WEIGHT_MAX = 256
FRAME_COST = 64


class Fixed(NamedTuple):
    """A limit without a setting: what it is of, its value, and why it cannot be set."""

    what: str
    value: int
    why: str


TRACED_WAITING_MAX = 10_000
TRACED_BYTES_MAX = 32 * 1024 * 1024
TRACED_BODY_MAX = 64 * 1024
TRACED_PROPERTIES_MAX = 32 * 1024
TRACED_ROUTES_MAX = 1000
LOG_READERS_MAX = 16
FORM_MAX = 16 * 1024
LIVE_KEYS_MAX = 500
METRICS_CONNECTIONS_MAX = 64
SCRAPERS_MAX = 16
LIVE_REQUEST_MAX = 512 * 1024
WEB_ACCEPTED_AT_ONCE = 1
TLS_READ = 32 * 1024
HEAD_MAX = 64 * 1024
HEADERS_MAX = 200
REQUESTS_WAITING_MAX = 4
CONTROL_AT_ONCE_MAX = 64
CONTROL_WAITING_MAX = 256
CONTROL_WAITING_BYTES_MAX = 64 * 1024 * 1024
CONTROL_WAIT_S = 10
CONTROL_SHARE = 4
CONTROL_APPLIANCE_WAITING_MAX = 65_536
TRIALS_MAX = 48

FIXED = (
    Fixed(
        "lines of the log that are kept for who reads along",
        ENTRIES_KEPT,
        "the log itself has all of them",
    ),
    Fixed(
        "readers of the live log at a time",
        LOG_READERS_MAX,
        "each holds a connection of the web process for as long as it reads",
    ),
    Fixed(
        "connections of the metrics port at a time",
        METRICS_CONNECTIONS_MAX,
        "a scraper needs one; where all are taken the address that has most gives way",
    ),
    Fixed(
        "scrapers for each of which one place more is kept on the metrics port",
        SCRAPERS_MAX,
        "they are the addresses that have fetched pages regularly for longest; with metrics_login"
        " only who signed in",
    ),
    Fixed(
        "rows that one subscription of a live page follows",
        LIVE_KEYS_MAX,
        "the longest page of a list has as many",
    ),
    Fixed(
        "bytes of one message of a live page",
        LIVE_REQUEST_MAX,
        "enough for the keys of all rows of a page with long names",
    ),
    Fixed(
        "bytes that each WebSocket frame counts before login, besides its own",
        FRAME_COST,
        "taking an empty frame apart takes as long as that of several hundred bytes",
    ),
    Fixed(
        "bytes of the sign-in form",
        FORM_MAX,
        "a name, a password and a path fit, and its sender has not signed in",
    ),
    Fixed(
        "connections that each port of the web app accepts in one turn of its loop",
        WEB_ACCEPTED_AT_ONCE,
        "what accepting takes is no address's yet; those that wait are bounded by tcp_backlog",
    ),
    Fixed(
        "bytes that a connection of the web app with TLS is read with",
        TLS_READ,
        "twice its longest record, which the protocol says; every connection has them, also one"
        " that sends nothing",
    ),
    Fixed(
        "bytes of the head of a request over HTTP",
        HEAD_MAX,
        "the longest names and cookies that are taken fit, and its sender has not signed in",
    ),
    Fixed(
        "headers of a request over HTTP",
        HEADERS_MAX,
        "browsers and proxies send a few dozen, and its sender has not signed in",
    ),
    Fixed(
        "requests of a connection that are read before earlier ones are answered",
        REQUESTS_WAITING_MAX,
        "they are answered one after the other; what follows waits in the socket",
    ),
    Fixed(
        "messages of the firehose that wait to be published, in one virtual host",
        TRACED_WAITING_MAX,
        "tracing must not take the memory of what is traced; what is left out is counted",
    ),
    Fixed(
        "bytes of what waits so, bodies and properties",
        TRACED_BYTES_MAX,
        "the same; messages that are left out are counted",
    ),
    Fixed(
        "bytes of a body in the firehose; the rest is cut off",
        TRACED_BODY_MAX,
        "tracing must not take the memory of what is traced",
    ),
    Fixed(
        "bytes of a message's properties, and of its queues' names, in the firehose's headers",
        TRACED_PROPERTIES_MAX,
        "headers are one frame, which the client that reads must take; what is left out is counted",
    ),
    Fixed(
        "queues that the firehose names of one message",
        TRACED_ROUTES_MAX,
        "the same, and a message for very many queues must not hold the loop",
    ),
    Fixed(
        "tables and arrays inside one another in headers or arguments",
        NESTING_MAX,
        "each level takes a part of the machine's stack, and what was stored under a higher limit"
        " could not be read under a lower one",
    ),
    Fixed(
        "values in one table of headers or arguments",
        TABLE_VALUES_MAX,
        "what was stored under a higher limit could not be read under a lower one",
    ),
    Fixed(
        "values in the headers of a message that a client publishes",
        PUBLISHED_VALUES_MAX,
        "what the broker adds to headers, such as x-death, has to fit into the same table",
    ),
    Fixed(
        "values in the body of a request over HTTP, or in a row of definitions; a comma in a text"
        " of a body, but not in a message's body or a parameter's value, counts as one",
        BODY_VALUES_MAX,
        "they are taken in one turn of the loop, half a millisecond for each thousand",
    ),
    Fixed(
        "bytes of a row of definitions, or of a request that declares or sets something",
        ROW_BYTES_MAX,
        "it is decoded in one turn of the loop, one and a half milliseconds for each MiB of text",
    ),
    Fixed(
        "characters in a pattern of a permission or a policy",
        PATTERN_CHARACTERS_MAX,
        "stored patterns are compiled at the next start: under a lower limit those of a user would"
        " be none",
    ),
    Fixed(
        "instructions of the compiled form of a pattern that is set or sent",
        PATTERN_STEPS_MAX,
        "a match of the longest name then takes at most about two milliseconds",
    ),
    Fixed(
        "bytes of memory of the compiled form of a pattern that is set or sent, states found while"
        " matching included; two of them where it begins with a negative lookahead",
        PATTERN_MEMORY_MAX,
        "the longest that is allowed fits; with more memory matching takes no less time",
    ),
    Fixed(
        "compiled patterns that are kept for the next request",
        PATTERNS_KEPT_MAX,
        "compiling one again takes about a millisecond",
    ),
    Fixed(
        "seconds that the answer to a change of a policy waits until the policy is applied",
        POLICY_WAIT_S,
        "tools give up soon after; the policy is applied all the same",
    ),
    Fixed(
        "weight of one binding of a hash ring",
        RING_WEIGHT_MAX,
        "smaller weights in the same proportions do the same",
    ),
    Fixed(
        "requests of users that one control connection, such as that of the web process, carries"
        " out at a time; the appliance's own have as many places besides",
        CONTROL_AT_ONCE_MAX,
        "each keeps its arguments and its answer in memory",
    ),
    Fixed(
        "requests of users that wait for such a place on one control connection",
        CONTROL_WAITING_MAX,
        "a burst of short requests is answered; more is refused with 503",
    ),
    Fixed(
        "bytes of what waits so",
        CONTROL_WAITING_BYTES_MAX,
        "a few messages of the largest size may wait",
    ),
    Fixed(
        "seconds that a request waits so; then it is refused with 503",
        CONTROL_WAIT_S,
        "clients give up soon after; the answer says when to try again",
    ),
    Fixed(
        "parts of these places, of what waits for them, of lists that are read (lists_read_max) and"
        " of trials, of which one user has one",
        CONTROL_SHARE,
        "one user's slow requests leave places for those of others",
    ),
    Fixed(
        "requests of the appliance's own that wait on one control connection",
        CONTROL_APPLIANCE_WAITING_MAX,
        "its processes ask for each shovel and link by itself, and there may be thousands",
    ),
    Fixed(
        "definitions of shovels, and of upstreams, that are tried at a time",
        TRIALS_MAX,
        "each waits up to a minute for brokers elsewhere",
    ),
)

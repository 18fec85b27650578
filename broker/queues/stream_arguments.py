"""What the arguments of a stream and of its consumers mean.

Texts are RabbitMQ's or LavinMQ's where a client can provoke theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from broker.queues.stream_filter import ALL, ANY, BY_DEFAULT, StreamFilter
from broker.schema.arguments import BY_OWNER
from broker.schema.errors import PreconditionFailed
from broker.schema.index_keys import BadKeys, index_keys
from broker.schema.times import Timestamp, age_ms
from broker.settings.bounds import Bounds

# What a stream carries out; any other argument that this broker knows is refused.
CARRIED_OUT = frozenset(
    {
        "x-max-age",
        "x-max-length",
        "x-max-length-bytes",
        "x-stream-max-segment-size-bytes",
        "x-stream-filter-size-bytes",
        "x-stream-index",
        "x-stream-tier",
        "x-stream-local-max-bytes",
        "x-stream-local-max-age",
        "x-queue-type",
        "x-queue-mode",
        "x-queue-version",
        "x-queue-leader-locator",
        "x-queue-master-locator",
        "x-initial-cluster-size",
    }
)

SEGMENT_LEAST = 4096
SEGMENT_MOST = 256 * 1024 * 1024
"""Recovery reads a segment that was being written as a whole, and positions are 32 bits."""


def check_stream(
    resource: str,
    *,
    durable: bool,
    exclusive: bool,
    auto_delete: bool,
    arguments: Mapping[str, Any],
) -> None:
    """Whether a stream can be declared so. Raises PreconditionFailed (406)."""
    for wrong, name in (
        (auto_delete, "auto-delete"),
        (exclusive, "exclusive"),
        (not durable, "non-durable"),
    ):
        if wrong:
            raise PreconditionFailed(f"invalid property '{name}' for {resource}")
    for name in arguments:
        if name in BY_OWNER["queue"] and name not in CARRIED_OUT:
            raise PreconditionFailed(f"invalid arg '{name}' for {resource} of queue type stream")
    if "x-max-age" in arguments and age_ms(arguments["x-max-age"]) is None:
        raise PreconditionFailed(
            f"invalid arg 'x-max-age' for {resource}: invalid_max_age "
            "(a number and one of Y, M, D, h, m, s, such as 7D)"
        )
    if "x-stream-index" in arguments:
        try:
            index_keys(arguments["x-stream-index"])
        except BadKeys as error:
            raise PreconditionFailed(
                f"invalid arg 'x-stream-index' for {resource}: {error}"
            ) from None
    local = "x-stream-local-max-age"
    if local in arguments and age_ms(arguments[local]) is None:
        raise PreconditionFailed(
            f"invalid arg '{local}' for {resource}: expected a number and one of Y, M, D, h, m, s, "
            "such as 7D"
        )


class Retention(NamedTuple):
    """What a stream keeps; -1 = no limit. `max_age` in ms, `segment_size` 0 = the broker's.
    `tier`: sealed segments go to the object store; `local_bytes` of files and `local_age` (ms) are
    how much of them stays on this disk, too."""

    max_length: int = -1
    max_length_bytes: int = -1
    max_age: int = -1
    segment_size: int = 0
    tier: bool = False
    local_bytes: int = -1
    local_age: int = -1

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Retention:
        """What the arguments of a queue, with those of its policies, say. Values that make no sense
        for a stream count as none."""
        age = age_ms(arguments.get("x-max-age"))
        local_age = age_ms(arguments.get("x-stream-local-max-age"))
        size = _whole(arguments, "x-stream-max-segment-size-bytes", 0)
        return cls(
            _whole(arguments, "x-max-length", -1),
            _whole(arguments, "x-max-length-bytes", -1),
            -1 if age is None else age,
            min(max(size, SEGMENT_LEAST), SEGMENT_MOST) if size > 0 else 0,
            arguments.get("x-stream-tier") is True,
            _whole(arguments, "x-stream-local-max-bytes", -1),
            -1 if local_age is None else local_age,
        )


def _whole(arguments: Mapping[str, Any], name: str, otherwise: int) -> int:
    value = arguments.get(name)
    return value if isinstance(value, int) and value >= 0 else otherwise


TIME_MOST = 2**62
"""Ms since 1970: a later time is behind everything, as this one is."""


class Start(NamedTuple):
    """Where a reader begins. `kind`: first, last, next, offset (`value` may be negative: that many
    before the end), time (`value` in ms since 1970)."""

    kind: str
    value: int = 0


def start_of(value: Any, now_ms: int) -> Start | None:
    """What x-stream-offset means; None if nothing."""
    if isinstance(value, Timestamp):
        return Start("time", min(int(value) * 1000, TIME_MOST))
    if isinstance(value, int) and not isinstance(value, bool):
        return Start("offset", int(value))
    if value in ("first", "last", "next"):
        return Start(value)
    age = age_ms(value)
    return None if age is None else Start("time", now_ms - age)


class Reading(NamedTuple):
    """What a consumer's arguments ask for. `start` is None where it is left out."""

    start: Start | None
    tracked: bool
    filter: StreamFilter | None


def reading_of(
    arguments: Mapping[str, Any],
    *,
    tag: str,
    no_ack: bool,
    exclusive: bool,
    prefetch_count: int,
    global_prefetch_count: int,
    now_ms: int,
    resource: str,
    bounds: Bounds,
) -> Reading:
    """What a consumer of a stream asks for. Raises PreconditionFailed (406)."""
    if exclusive:
        raise PreconditionFailed(f"exclusive consumers not supported by stream {resource}")
    if no_ack:
        raise PreconditionFailed(f"automatic acknowledgement not supported by stream {resource}")
    if not prefetch_count:
        raise PreconditionFailed(f"consumer prefetch count is not set for stream {resource}")
    if global_prefetch_count:
        raise PreconditionFailed(f"global qos not supported by stream {resource}")
    if "x-priority" in arguments:
        raise PreconditionFailed(f"x-priority not supported by stream {resource}")
    start = None
    if arguments.get("x-stream-offset") is not None:
        start = start_of(arguments["x-stream-offset"], now_ms)
        if start is None:
            raise PreconditionFailed(
                f"invalid arg 'x-stream-offset' for {resource}: expected an integer, a timestamp, "
                "'first', 'next', 'last', or an interval such as '1h'"
            )
    tracked = arguments.get("x-stream-automatic-offset-tracking")
    if tracked is None:
        tracked = start is None and not tag.startswith("amq.ctag-")
    elif tracked in ("true", "false"):
        tracked = tracked == "true"
    elif not isinstance(tracked, bool):
        raise PreconditionFailed(
            f"invalid arg 'x-stream-automatic-offset-tracking' for {resource}: expected a boolean"
        )
    return Reading(start, tracked, filter_of(arguments, resource, bounds))


def filter_of(arguments: Mapping[str, Any], resource: str, bounds: Bounds) -> StreamFilter | None:
    """The filter that a consumer asks for, None for everything. Raises PreconditionFailed (406)."""
    match = arguments.get("x-filter-match-type")
    if match is not None and (not isinstance(match, str) or match.lower() not in ("all", "any")):
        raise PreconditionFailed(
            f"invalid arg 'x-filter-match-type' for {resource}: expected 'all' or 'any'"
        )
    unfiltered = arguments.get("x-stream-match-unfiltered")
    if unfiltered is not None and not isinstance(unfiltered, bool):
        raise PreconditionFailed(
            f"invalid arg 'x-stream-match-unfiltered' for {resource}: expected a boolean"
        )
    values: list[bytes] = []
    headers: list[tuple[bytes, bytes]] = []
    _gather(arguments.get("x-stream-filter"), values, headers, resource)
    if not values and not headers:
        return None
    count = len(values) + len(headers)
    size = sum(map(len, values)) + sum(len(name) + len(value) for name, value in headers)
    for found, most, what, setting in (
        (count, bounds.stream_filter_values, "values and headers", "stream_filter_values_max"),
        (size, bounds.stream_filter_bytes, "bytes", "stream_filter_bytes_max"),
    ):
        if found > most:
            raise PreconditionFailed(
                f"invalid arg 'x-stream-filter' for {resource}: {found} {what}, at most {most} "
                f"({setting})"
            )
    kind = BY_DEFAULT if match is None else ALL if match.lower() == "all" else ANY
    return StreamFilter(values, headers, bool(unfiltered), kind)


def _gather(
    asked: Any, values: list[bytes], headers: list[tuple[bytes, bytes]], resource: str
) -> None:
    if asked is None:
        return
    if isinstance(asked, str):
        values += [_octets(part.strip()) for part in asked.split(",")]
    elif isinstance(asked, list):
        for each in asked:
            if isinstance(each, list):
                raise _bad_filter(resource)
            _gather(each, values, headers, resource)
    elif isinstance(asked, Mapping):
        for name, value in asked.items():
            if name == "x-stream-filter":
                _gather(value, values, headers, resource)
            elif isinstance(value, bool):
                headers.append((_octets(name), b"true" if value else b"false"))
            elif isinstance(value, (str, int)):
                headers.append((_octets(name), _octets(str(value))))
            else:
                raise _bad_filter(resource)
    else:
        raise _bad_filter(resource)


def _bad_filter(resource: str) -> PreconditionFailed:
    return PreconditionFailed(
        f"invalid arg 'x-stream-filter' for {resource}: expected a string, an array of them, or a "
        "table of headers with strings, integers or booleans"
    )


def _octets(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")

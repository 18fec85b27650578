"""The scenarios and their budgets, one table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scenario:
    """What the generator is asked to do, and what the broker may spend on it.

    budget: microseconds of broker CPU per message (per delivery where there are consumers).
    share: the same as a part of RabbitMQ's in the same run (1/40 = 0.025).
    confirm_latency: the p50 of a confirm stands beside two fdatasyncs measured behind each round.
    window: the rate stands beside so many messages for two fdatasyncs, likewise; 0: it does not.
    door: `amqp`, `amqps` or `ws`; the generator is told by an option of its own, too.
    """

    name: str
    text: str
    options: tuple[str, ...]
    budget: float | None = None
    share: float | None = None
    quick: bool = False
    confirm_latency: bool = False
    window: int = 0
    door: str = "amqp"

    @property
    def is_beside_disk(self) -> bool:
        """Whether the disk is measured behind each of its rounds."""
        return self.confirm_latency or self.window > 0


CONFIRMED = ("--persistent", "--confirm", "1000", "--ack", "100", "--prefetch", "1000")

DOORS = (("-tls", "TLS", "amqps", "tls"), ("-ws", "WebSocket", "ws", "websocket"))
SMALL = ("--persistent", "--flush", "--body", "64")

SCENARIOS = (
    Scenario(
        "S1",
        "16 B transient, auto-ack",
        ("--in-flight", "100000"),
        budget=0.35,
        share=1 / 40,
        quick=True,
    ),
    Scenario(
        "S1n",
        "S1, one message per packet",
        ("--flush", "--in-flight", "20000"),
        budget=2.2,
        share=1 / 6,
        quick=True,
    ),
    Scenario(
        "S1n-1K",
        "S1n with 1 KiB",
        ("--flush", "--in-flight", "20000", "--body", "1024"),
    ),
    Scenario(
        "S2",
        "16 B persistent, confirm window 1000, ack every 100",
        CONFIRMED,
        budget=0.8,
        share=1 / 25,
        quick=True,
    ),
    Scenario(
        "S3",
        "S2 with 1 KiB",
        (*CONFIRMED, "--body", "1024"),
        budget=2.2,
        share=1 / 18,
        quick=True,
    ),
    Scenario(
        "S4",
        "100 KB transient, auto-ack",
        ("--body", "100000", "--in-flight", "200"),
        budget=120,
    ),
    Scenario(
        "S5",
        "8 publishers, 8 queues, 8 consumers, 16 B transient, auto-ack",
        ("--publishers", "8", "--queues", "8", "--consumers", "8", "--in-flight", "100000"),
        budget=0.5,
    ),
    Scenario(
        "S6",
        "fan-out 1 to 4, 16 B transient, per delivery",
        ("--fanout", "4", "--consumers", "4", "--in-flight", "25000"),
        budget=0.3,
    ),
    Scenario(
        "idle",
        "S1n at 1,000 messages/s: latency",
        ("--flush", "--rate", "1000"),
        quick=True,
    ),
    Scenario(
        "W1",
        "16 B persistent, confirm window 1, no consumer: confirm latency",
        ("--persistent", "--confirm", "1", "--consumers", "0"),
        quick=True,
        confirm_latency=True,
    ),
    *(
        Scenario(
            name,
            f"64 B persistent, confirm window 100, no consumer{how}",
            ("--persistent", *flush, "--body", "64", "--confirm", "100", "--consumers", "0"),
            window=100,
        )
        for name, how, flush in (
            ("W100", "", ()),
            ("W100n", ", one message per packet", ("--flush",)),
        )
    ),
    *(
        Scenario(
            f"{rate // 1000}k/s",
            f"{rate:,} messages/s, 64 B persistent, confirm window 100, ack every 10",
            (*SMALL, "--ack", "10", "--prefetch", "1000", "--confirm", "100", "--rate", str(rate)),
        )
        for rate in (2_000, 20_000)
    ),
    Scenario(
        "8xW1",
        "8 publishers with confirm window 1, 64 B persistent, no consumer",
        (*SMALL, "--publishers", "8", "--queues", "8", "--confirm", "1", "--consumers", "0"),
        confirm_latency=True,
    ),
    Scenario(
        "8xW10",
        "8 publishers with confirm window 10, 8 consumers that ack each, prefetch 10",
        (
            *(*SMALL, "--publishers", "8", "--queues", "8", "--consumers", "8"),
            *("--confirm", "10", "--ack", "1", "--prefetch", "10"),
        ),
    ),
    *(
        Scenario(
            f"{name}{letter}",
            f"{text} over {way}",
            (f"--{option}", *options),
            door=door,
        )
        for letter, way, door, option in DOORS
        for name, text, options in (
            ("S1", "16 B transient, auto-ack", ("--in-flight", "100000")),
            ("S1n", "S1, one message per packet", ("--flush", "--in-flight", "20000")),
            ("S2", "16 B persistent, confirm window 1000, ack every 100", CONFIRMED),
            ("1K", "1 KiB persistent, as S3", (*CONFIRMED, "--body", "1024")),
            ("S4", "100 KB transient, auto-ack", ("--body", "100000", "--in-flight", "200")),
        )
    ),
    *(
        Scenario(name, text, ("--operation", operation, "--durable", durable))
        for name, text, operation, durable in (
            ("connect", "open and close a connection with a channel", "connection", "0"),
            ("channel", "open and close a channel", "channel", "0"),
            ("consume", "consume and cancel", "consume", "0"),
            ("bind", "bind a transient queue", "bind", "0"),
            ("bind D", "bind a durable queue", "bind", "1"),
            ("declare", "declare and delete a transient queue", "declare", "0"),
            ("declare D", "declare and delete a durable queue", "declare", "1"),
        )
    ),
)

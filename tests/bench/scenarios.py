"""The scenarios and their budgets (DESIGN section 8), one table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scenario:
    """What the generator is asked to do, and what the broker may spend on it.

    budget: microseconds of broker CPU per message (per delivery where there are consumers).
    share: the same as a part of RabbitMQ's in the same run (1/40 = 0.025).
    """

    name: str
    text: str
    options: tuple[str, ...]
    budget: float | None = None
    share: float | None = None
    quick: bool = False
    confirm_latency: bool = False


CONFIRMED = ("--persistent", "--confirm", "1000", "--ack", "100", "--prefetch", "1000")

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
)

"""The table of modes and options; the parser, the help and docs/command-line.md read it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from broker.process.lifetime import program

PROGRAM = f"{program()} perf"

MODES: dict[str, tuple[str, str]] = {
    "throughput": (
        "Publishes and consumes as fast as it can, or at a rate.",
        "throughput -x 2 -y 2 -s 1024 -c 1000 -p -a 100 -P 1000 -z 10 -l",
    ),
    "bind-churn": ("Binds a queue and unbinds it again.", "bind-churn -z 5"),
    "queue-churn": ("Declares a queue and deletes it again.", "queue-churn --durable -z 5"),
    "connection-churn": ("Connects, opens a channel and closes.", "connection-churn -x 4 -z 5"),
    "channel-churn": ("Opens a channel and closes it again.", "channel-churn -z 5"),
    "consumer-churn": ("Starts a consumer and cancels it again.", "consumer-churn -z 5"),
    "connection-count": (
        "Opens connections, each with a channel, and keeps them.",
        "connection-count -n 1000 -z 30",
    ),
    "queue-count": ("Declares queues and deletes them at the end.", "queue-count -n 10000"),
}
"""Name of a mode to what it does and an example."""

LOAD = ("throughput",)
CHURN = tuple(mode for mode in MODES if mode.endswith("-churn"))
COUNT = ("connection-count", "queue-count")
EVERY = tuple(MODES)


def natural(text: str) -> int:
    """A whole number from 0 on; `2k` and `1M` are thousands and millions."""
    scale = {"k": 1000, "K": 1000, "M": 1_000_000}.get(text[-1:], 1)
    digits = text if scale == 1 else text[:-1]
    if not digits.isascii() or not digits.isdigit():
        raise argparse.ArgumentTypeError(f"'{text[:50]}' is not a whole number from 0 on")
    return int(digits) * scale


def rate(text: str) -> float:
    """Messages a second."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text[:50]}' is not a rate")
    return value


def json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"'{text[:50]}' is not a JSON object")
    return value


@dataclass(frozen=True, slots=True)
class Option:
    """One option, and the modes that have it. Without `read` it is a flag."""

    names: tuple[str, ...]
    help: str
    modes: tuple[str, ...]
    read: Callable[[str], Any] | None = None
    default: Any = None

    @property
    def key(self) -> str:
        return self.names[-1].lstrip("-").replace("-", "_")

    @property
    def spelled(self) -> str:
        names = ", ".join(self.names)
        return names if self.read is None else f"{names} {self.key.upper()}"

    @property
    def explained(self) -> str:
        shown = self.default not in (None, "", 0, {}) and self.read is not None
        return f"{self.help} Default: {self.default}." if shown else self.help


_QUEUE = "perf-test"
OPTIONS: tuple[Option, ...] = (
    Option(("--uri",), "Broker (amqp:// or amqps://); else the one that runs here.", EVERY, str),
    Option(("-z", "--time"), "Seconds after which it stops; 0: at Ctrl-C.", EVERY, rate, 0.0),
    Option(("-q", "--quiet"), "Print the summary only.", EVERY),
    Option(("-j", "--json"), "Print the summary as JSON.", EVERY),
    Option(
        ("-x", "--publishers"), "Publishers; in churn, parallel workers.", LOAD + CHURN, natural, 1
    ),
    Option(("-y", "--consumers"), "Consumers.", LOAD, natural, 1),
    Option(("-s", "--size"), "Bytes of a body; 16 or more carry the time.", LOAD, natural, 16),
    Option(("-V", "--verify"), "Check every body that was received.", LOAD),
    Option(("-a", "--ack"), "Messages between acks; 0: no acks.", LOAD, natural, 0),
    Option(
        ("-c", "--confirm"), "Publish with confirms; most unconfirmed messages.", LOAD, natural, 0
    ),
    Option(
        ("-t", "--publish-transactions"), "Publishes in a transaction; 0: none.", LOAD, natural, 0
    ),
    Option(
        ("-T", "--ack-transactions"),
        "Acknowledged messages in a transaction; 0: none.",
        LOAD,
        natural,
        0,
    ),
    Option(("-u", "--queue"), "Name of the queue.", LOAD, str, _QUEUE),
    Option(("--queue-pattern",), "Names of several queues, % being the number.", LOAD, str),
    Option(("--queues",), "How many; 0: as many as publishers or consumers.", LOAD, natural, 0),
    Option(("-k", "--routing-key"), "Routing key; else the name of the queue.", LOAD, str),
    Option(("-e", "--exchange"), "Exchange; the queue is bound to it.", LOAD, str, ""),
    Option(("-r", "--rate"), "Publishes a second of each publisher; 0: no limit.", LOAD, rate, 0.0),
    Option(
        ("-R", "--consumer-rate"),
        "Deliveries a second of each consumer; 0: no limit.",
        LOAD,
        rate,
        0.0,
    ),
    Option(("-p", "--persistent"), "Persistent messages in a durable queue.", LOAD),
    Option(("-P", "--prefetch"), "Prefetch of each consumer; 0: no limit.", LOAD, natural, 0),
    Option(("-g", "--poll"), "Take messages with basic.get.", LOAD),
    Option(("-C", "--pmessages"), "Publishes after which it stops; 0: no limit.", LOAD, natural, 0),
    Option(
        ("-D", "--cmessages"), "Deliveries after which it stops; 0: no limit.", LOAD, natural, 0
    ),
    Option(("--mandatory",), "Publish as mandatory; count what comes back.", LOAD),
    Option(("--queue-args",), "Arguments of the queue, a JSON object.", LOAD, json_object, {}),
    Option(("--consumer-args",), "Arguments of consumers, a JSON object.", LOAD, json_object, {}),
    Option(("--properties",), "Properties of messages, a JSON object.", LOAD, json_object, {}),
    Option(("--random-bodies",), "Bodies of random bytes (no compression helps).", LOAD),
    Option(("-l", "--latency"), "Print latency percentiles.", LOAD),
    Option(("--keep",), "Leave the queues in place at the end.", (*LOAD, "queue-count")),
    Option(("--durable",), "Durable queues.", ("bind-churn", "queue-churn", "queue-count")),
    Option(
        ("-C", "--operations"), "Operations after which it stops; 0: no limit.", CHURN, natural, 0
    ),
    Option(("-n", "--count"), "How many.", COUNT, natural, 100),
)


class UsageError(Exception):
    """A command line that cannot be read."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def read(mode: str, argv: Sequence[str]) -> argparse.Namespace:
    """The options of a mode. Raises UsageError."""
    parser = _Parser(prog=f"{PROGRAM} {mode}", add_help=False, allow_abbrev=False)
    for option in OPTIONS:
        if mode not in option.modes:
            continue
        if option.read is None:
            parser.add_argument(*option.names, dest=option.key, action="store_true")
        else:
            parser.add_argument(
                *option.names, dest=option.key, type=option.read, default=option.default
            )
    found = parser.parse_args(argv)
    if mode == "throughput":
        _check(found)
    return found


def _check(found: argparse.Namespace) -> None:
    if found.confirm and found.publish_transactions:
        raise UsageError("a channel has confirms (-c) or transactions (-t), not both")
    if not found.publishers and not found.consumers:
        raise UsageError("neither publishers (-x) nor consumers (-y)")
    if found.ack_transactions and not found.ack:
        raise UsageError("transactions of acks (-T) need acks (-a)")
    if found.queue_pattern is not None and "%" not in found.queue_pattern:
        raise UsageError("--queue-pattern needs a % for the number")
    if found.verify and found.random_bodies:
        raise UsageError("random bodies cannot be verified")


def overview() -> str:
    """All modes."""
    lines = [
        f"usage: {PROGRAM} MODE [options]",
        "",
        "Loads a broker and measures it.",
        "",
        "Modes:",
    ]
    lines += [f"  {mode:<17} {text}" for mode, (text, _) in MODES.items()]
    return "\n".join([*lines, "", f"{PROGRAM} MODE --help shows the options of a mode."])


def page(mode: str) -> str:
    """One mode and its options."""
    text, example = MODES[mode]
    lines = [f"usage: {PROGRAM} {mode} [options]", "", text, "", "Options:"]
    lines += [f"  {one.spelled:<44} {one.explained}" for one in OPTIONS if mode in one.modes]
    return "\n".join([*lines, "", f"Example: {PROGRAM} {example}"])

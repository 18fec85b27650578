"""Headers matching as RabbitMQ documents it."""

from typing import Any


def same(wanted: Any, given: Any) -> bool:
    """Equal values of one kind; a number is no boolean."""
    if isinstance(wanted, bool) or isinstance(given, bool):
        return wanted is given
    return bool(wanted == given)


def matches(arguments: dict[str, Any], headers: dict[str, Any]) -> bool:
    """Whether a binding's arguments accept a message's headers."""
    how = arguments.get("x-match", "all")
    counted = {
        name: wanted
        for name, wanted in arguments.items()
        if name != "x-match" and (how.endswith("-with-x") or not name.startswith("x-"))
    }
    hits = 0
    for name, wanted in counted.items():
        if name in headers and (wanted is None or same(wanted, headers[name])):
            hits += 1
    return hits == len(counted) if how.startswith("all") else hits > 0

"""Times among the values of arguments: AMQP's timestamps, and ages such as `7D`."""

from __future__ import annotations

import re
from typing import Any

AGE_MOST = 10**15
"""Ms: longer ages, of more than 30,000 years, are as good as this one."""

_AGE = re.compile(r"([0-9]{1,12})([YMDhms])", re.ASCII)
_AGE_MS = {
    "Y": 365 * 86_400_000,
    "M": 30 * 86_400_000,
    "D": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1_000,
}


class Timestamp(int):
    """Seconds since 1970 (type T of AMQP): a time, and no integer where one is asked for."""


def age_ms(value: Any) -> int | None:
    """Milliseconds of an age such as `7D`, as RabbitMQ counts months and years, at most
    `AGE_MOST`; None if it is no age."""
    found = _AGE.fullmatch(value) if isinstance(value, str) else None
    return min(int(found[1]) * _AGE_MS[found[2]], AGE_MOST) if found else None

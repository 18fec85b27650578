"""Plans: which question is computed when, and who gets a notice of the result.

`<data>/reports/plans.json` holds them. A plan has a name, a report with parameters, a schedule
(cron's five fields, UTC; empty: never), and where its result is delivered: a webhook, mail
addresses. A plan for a report's own question (no parameters) takes the place of the schedule in the
settings.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from croniter import croniter

from . import parameters
from .catalog import REPORTS
from .placement import HERE, Placement, Write
from .schedule import next_at_ms

FILE = "plans.json"
PLANS_MAX = 100
NAME_LENGTH_MAX = 100
URL_LENGTH_MAX = 2000
MAIL_MAX = 20
FIELDS = ("schedule", "webhook", "mail")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`parameters` as `parameters.read` spells them; `mail`: addresses."""

    name: str
    report: str
    parameters: dict[str, str] = {}
    schedule: str = ""
    webhook: str = ""
    mail: list[str] = []

    @property
    def is_default(self) -> bool:
        """Whether it asks the report's own question."""
        return not self.parameters


class _File(msgspec.Struct):
    plans: list[Plan] = []


def read(directory: Path) -> list[Plan]:
    """The plans below the reports' directory, by name. Raises ValueError for a damaged file."""
    try:
        found = msgspec.json.decode((directory / FILE).read_bytes(), type=_File).plans
    except FileNotFoundError:
        return []
    except msgspec.MsgspecError as error:
        raise ValueError(f"{directory / FILE} cannot be read: {error}") from None
    return sorted((one for one in found if one.report in REPORTS), key=lambda one: one.name)


def store(directory: Path, plans: list[Plan], placement: Placement = HERE) -> None:
    """Raises OSError, and ValueError for too many."""
    if len(plans) > PLANS_MAX:
        raise ValueError(f"there are {PLANS_MAX} plans already: remove some first")
    data = msgspec.json.format(msgspec.json.encode(_File(plans)), indent=1)
    placement.carry([Write(str(directory / FILE), data)])


def checked(report: str, name: str, given: Mapping[str, str]) -> Plan:
    """A plan from texts: parameters of the report, `schedule`, `webhook`, and `mail` (addresses
    with commas between them). Raises ValueError with what is wrong.
    """
    name = name.strip()
    if not 0 < len(name) <= NAME_LENGTH_MAX or not name.isprintable() or "/" in name:
        raise ValueError(f"a plan's name has 1 to {NAME_LENGTH_MAX} printable characters, no /")
    unknown = sorted(set(given) - {*FIELDS, *parameters.NAMES})
    if unknown:
        names = ", ".join((*FIELDS, *parameters.NAMES))
        raise ValueError(f"a plan has no {unknown[0][:40]!r}: it has {names}")
    _, canonical = parameters.read(REPORTS[report], given)
    return Plan(
        name=name,
        report=report,
        parameters=canonical,
        schedule=_schedule(given.get("schedule", "")),
        webhook=_webhook(given.get("webhook", "").strip()),
        mail=_mail(given.get("mail", "")),
    )


def _schedule(text: str) -> str:
    schedule = " ".join(text.split())
    if not schedule:
        return ""
    if len(schedule.split()) != 5 or not croniter.is_valid(schedule):
        raise ValueError(f"schedule is {schedule[:60]!r}, not cron's five fields such as 0 6 * * 1")
    try:
        next_at_ms(schedule, time.time_ns() // 1_000_000)
    except ValueError:
        raise ValueError(
            f"schedule is {schedule[:60]!r}, and such a day never comes: name a day that its months"
            " have"
        ) from None
    return schedule


def _webhook(url: str) -> str:
    if not url:
        return ""
    try:
        parts = urlsplit(url)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        right = False
    if not right or not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError(
            f"webhook is {url[:60]!r}, not an address that begins with https:// or http://"
        )
    if len(url) > URL_LENGTH_MAX:
        raise ValueError(f"webhook has more than {URL_LENGTH_MAX} characters")
    return url


def _mail(text: str) -> list[str]:
    found = [part.strip() for part in text.split(",") if part.strip()]
    if len(found) > MAIL_MAX:
        raise ValueError(f"mail has more than {MAIL_MAX} addresses")
    for address in found:
        user, at, host = address.rpartition("@")
        plain = address.isascii() and address.isprintable() and not set(address) & set(' <>",;:\\')
        if not (user and at and host and plain) or len(address) > 254:
            raise ValueError(f"mail has {address[:60]!r}, not an address such as ops@example.org")
    return found

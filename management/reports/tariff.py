"""The tariff of the cost statement: what messages, bytes, storage and connections cost, from which
month on.

`<data>/reports/tariff.json` holds one entry for each month from which prices are new. Prices are
decimal texts; they and amounts are computed in millionths of the currency, as integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path

import msgspec

from .placement import HERE, Placement, Write

FILE = "tariff.json"
MILLION = 1_000_000
PRICE_MAX = Decimal(1_000_000_000)
ENTRIES_MAX = 600

# What is charged, the unit of its price, and how much of what the tables count is one unit:
# messages, bytes, byte seconds, connection milliseconds.
ITEMS: dict[str, tuple[str, int]] = {
    "messages": ("a million messages", 10**6),
    "bytes": ("a GB of bodies", 10**9),
    "storage": ("a GB held for an hour", 10**9 * 3600),
    "connections": ("an hour of a connection", 3_600_000),
}


class Tariff(msgspec.Struct, frozen=True, kw_only=True):
    """Prices from the month `since` (`2026-11`, UTC) on, in `currency` (three letters)."""

    since: str
    currency: str
    messages: str = "0"
    bytes: str = "0"
    storage: str = "0"
    connections: str = "0"

    @property
    def begins(self) -> datetime:
        return month_of(self.since)

    def price(self, item: str) -> int:
        """The price of an item in millionths of the currency."""
        return int(Decimal(getattr(self, item)) * MILLION)


class _File(msgspec.Struct):
    tariffs: list[Tariff] = []


def read(directory: Path) -> list[Tariff]:
    """The tariffs below the reports' directory, oldest first. Raises ValueError for a bad file."""
    try:
        data = (directory / FILE).read_bytes()
    except FileNotFoundError:
        return []
    try:
        found = msgspec.json.decode(data, type=_File).tariffs
    except msgspec.MsgspecError as error:
        raise ValueError(f"{directory / FILE} cannot be read: {error}") from None
    return sorted((checked(msgspec.to_builtins(one)) for one in found), key=lambda one: one.since)


def store(directory: Path, tariffs: list[Tariff], placement: Placement = HERE) -> None:
    """Raises OSError, and ValueError for too many."""
    if len(tariffs) > ENTRIES_MAX:
        raise ValueError(f"there are {ENTRIES_MAX} tariffs already: remove some first")
    data = msgspec.json.format(msgspec.json.encode(_File(tariffs)), indent=1)
    placement.carry([Write(str(directory / FILE), data)])


def checked(given: Mapping[str, str]) -> Tariff:
    """A tariff from texts; a price that is left out is 0. Raises ValueError with what is wrong."""
    unknown = sorted(set(given) - {"since", "currency", *ITEMS})
    if unknown:
        names = ", ".join(("since", "currency", *ITEMS))
        raise ValueError(f"a tariff has no {unknown[0][:40]!r}: it has {names}")
    since = f"{month_of(given.get('since', '')):%Y-%m}"
    currency = given.get("currency", "").strip().upper()
    if len(currency) != 3 or not (currency.isascii() and currency.isalpha()):
        raise ValueError(f"currency is {currency[:20]!r}, not three letters such as EUR")
    prices = {item: _price(item, given.get(item, "")) for item in ITEMS}
    return Tariff(since=since, currency=currency, **prices)


def month_of(text: str) -> datetime:
    """The beginning of a month that is spelled `2026-11`. Raises ValueError."""
    try:
        if len(text) != 7:
            raise ValueError
        month = datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a month such as 2026-11") from None
    if not 2000 <= month.year < 9999:
        raise ValueError(f"{text!r}: years are 2000 to 9998")
    return month


def amount(millionths: int) -> str:
    """Millionths as a decimal text: `12.345678`, `3`, `0.5`."""
    whole, part = divmod(abs(millionths), MILLION)
    text = f"{whole}.{part:06}".rstrip("0").rstrip(".")
    return f"-{text}" if millionths < 0 else text


def _price(item: str, text: str) -> str:
    text = text.strip() or "0"
    wrong = f"the price of {ITEMS[item][0]} is {text[:40]!r}: "
    try:
        price = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{wrong}not a number such as 0.25") from None
    if not price.is_finite() or not 0 <= price <= PRICE_MAX:
        raise ValueError(f"{wrong}prices are 0 to {PRICE_MAX}")
    if price * MILLION != (price * MILLION).to_integral_value():
        raise ValueError(f"{wrong}no more than six digits stand behind the point")
    return amount(int(price * MILLION))

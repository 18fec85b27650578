"""Reading and showing the values that a person writes: sizes, times, ports, lists, choices.

Standard library only: what runs before any package is installed reads settings with it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

SIZE_UNITS = {
    "": 1,
    "b": 1,
    "k": 1024,
    "m": 1024**2,
    "g": 1024**3,
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
    "tib": 1024**4,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
}
TIME_UNITS = {"ms": 0.001, "": 1, "s": 1, "min": 60, "h": 3600, "d": 86400}
LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")
TLS_VERSIONS = ("1.2", "1.3")
TLS_VERIFY = ("none", "optional", "required")
TLS_LOGIN = ("distinguished_name", "common_name", "subject_alternative_name")
TLS_SAN = ("dns", "email", "ip", "uri")
HIDDEN = "not shown"
"""In place of a secret."""

_SPARK_OPTION = re.compile(r"spark(\.[\w-]+)+=\S+", re.ASCII)
_SPARK_SECRET = re.compile(
    r"(spark[^\s,=]*(?:secret|passw|token|key|credential)[^\s,=]*=)[^\s,]+", re.IGNORECASE
)
_NAMED_PATH = re.compile(r"[\w.-]+=/\S+", re.ASCII)
_NUMBER = re.compile(r"\s*(\d+(?:[._]\d+)*)\s*([A-Za-z]*)\s*", re.ASCII)


class BadValue(ValueError):
    """What the text should have been: "a size such as 64 MiB"."""


def reader(kind: str, **bounds: Any) -> Callable[[str], Any]:
    """The function that reads a text of this kind; it raises `BadValue`."""
    read = READERS[kind]
    return lambda text: read(text.strip(), **bounds)


def shown(value: Any, kind: str) -> str:
    """A value as a person would write it."""
    if value is None:
        return ""
    if kind == "size" or (kind == "memory" and isinstance(value, int)):
        for unit, name in ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB")):
            if value and value % unit == 0:
                return f"{value // unit} {name}"
        return str(value)
    if kind == "time":
        for scale, name in ((86400, "d"), (3600, "h"), (60, "min")):
            if value >= scale and value % scale == 0:
                return f"{value // scale:g} {name}"
        return f"{value:g} s" if value >= 1 else f"{value * 1000:g} ms"
    if kind == "yes or no":
        return "yes" if value else "no"
    if kind == "percent":
        return f"{value} %"
    if kind in ("addresses", "list", "named paths", "networks", "spark options"):
        return ", ".join(value)
    if kind == "keepalive":
        return ":".join(str(each) for each in value)
    return str(value)


def without_secrets(text: str) -> str:
    """Options of Spark without the values of those whose names say that they are secret."""
    return _SPARK_SECRET.sub(lambda match: match[1] + HIDDEN, text)


def read_size(text: str, least: int = 0, most: int = 2**63 - 1) -> int:
    """Bytes. Units: B; KiB, MiB, GiB, TiB (also K, M, G); kB, MB, GB (powers of 1000)."""
    match = _NUMBER.fullmatch(text)
    unit = SIZE_UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise BadValue("a size such as 65536, 64 KiB or 8 MiB")
    try:
        value = int(float(match[1].replace("_", "")) * unit)
    except ValueError:
        raise BadValue("a size such as 65536, 64 KiB or 8 MiB") from None
    if not least <= value <= most:
        upper = f" to {shown(most, 'size')}" if most < 2**63 - 1 else " or more"
        raise BadValue(f"a size of {shown(least, 'size')}{upper}")
    return value


def read_memory(text: str) -> int | float:
    """Bytes, or a share of the machine's memory between 0 and 1."""
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if "." in text and 0 < share <= 1:
        return share
    try:
        return read_size(text, least=1024 * 1024)
    except BadValue:
        raise BadValue("a size such as 512 MiB, or a share of the memory such as 0.6") from None


def read_time(text: str, least: float = 0, most: float = 3650 * 86400) -> float:
    """Seconds. Units: ms, s, min, h, d."""
    match = _NUMBER.fullmatch(text)
    unit = TIME_UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise BadValue("a time such as 10 s, 200 ms, 5 min, 8 h or 30 d")
    try:
        value = float(match[1].replace("_", "")) * unit
    except ValueError:
        raise BadValue("a time such as 10 s, 200 ms, 5 min, 8 h or 30 d") from None
    if not least <= value <= most:
        raise BadValue(f"a time from {shown(least, 'time')} to {shown(most, 'time')}")
    return int(value) if value == int(value) else value


def read_count(text: str, least: int = 0, most: int = 2**63 - 1) -> int:
    """A whole number; underscores may group its digits."""
    if not re.fullmatch(r"\d+(?:_\d+)*", text, re.ASCII) or not least <= int(text) <= most:
        upper = f" to {most}" if most < 2**63 - 1 else " or more"
        raise BadValue(f"a whole number, {least}{upper}")
    return int(text)


def read_percent(text: str, least: int = 0) -> int:
    """A whole number up to 100; the sign may be left out."""
    number = text.removesuffix("%").rstrip()
    if not re.fullmatch(r"\d{1,3}", number, re.ASCII) or not least <= int(number) <= 100:
        raise BadValue(f"a percentage, {least} to 100")
    return int(number)


def read_port(text: str, least: int = 0) -> int:
    if not re.fullmatch(r"-?\d{1,5}", text, re.ASCII) or not least <= int(text) <= 65535:
        raise BadValue(f"a port, {least} to 65535")
    return int(text)


def read_flag(text: str) -> bool:
    value = {"yes": True, "true": True, "on": True, "1": True}.get(text.lower())
    if value is None:
        value = {"no": False, "false": False, "off": False, "0": False, "": False}.get(text.lower())
    if value is None:
        raise BadValue("yes or no")
    return value


def read_path(text: str, needed: bool = False) -> Path | None:
    if "\0" in text or (needed and not text):
        raise BadValue("a path")
    try:
        return Path(text).expanduser() if text else None
    except RuntimeError:
        raise BadValue("a path: the user behind ~ has no home directory") from None


def read_address(text: str) -> str:
    """An IPv4 or IPv6 address, or `localhost`."""
    if text == "localhost":
        return "127.0.0.1"
    try:
        return str(ipaddress.ip_address(text.removeprefix("[").removesuffix("]")))
    except ValueError:
        raise BadValue("an address such as 127.0.0.1, 0.0.0.0 or ::1") from None


def read_addresses(text: str) -> tuple[str, ...]:
    """One or more addresses, between commas or blanks."""
    found = tuple(dict.fromkeys(read_address(word) for word in read_list(text)))
    if not found:
        raise BadValue("an address such as 127.0.0.1, 0.0.0.0 or ::1")
    return found


def read_networks(text: str) -> tuple[str, ...]:
    """Addresses or networks such as 10.0.0.0/8, between commas or blanks."""
    try:
        return tuple(str(ipaddress.ip_network(word)) for word in read_list(text))
    except ValueError:
        raise BadValue("a list of addresses or networks such as 10.0.0.5, 192.168.0.0/16") from None


def read_keepalive(text: str) -> tuple[int, ...]:
    """Seconds, seconds and a count, between colons; nothing for 0."""
    if text == "0":
        return ()
    parts = text.split(":")
    if len(parts) != 3 or not all(
        re.fullmatch(r"\d{1,5}", part, re.ASCII) and 1 <= int(part) <= most
        for part, most in zip(parts, (32767, 32767, 127), strict=True)
    ):
        raise BadValue("0, or seconds:seconds:count such as 60:10:3")
    return tuple(int(part) for part in parts)


def read_text(text: str) -> str:
    if not text.isprintable():
        raise BadValue("text without control characters")
    return text


def read_list(text: str) -> tuple[str, ...]:
    """Words between commas or blanks."""
    return tuple(text.replace(",", " ").split())


def read_spark_options(text: str) -> tuple[str, ...]:
    """Words `spark.<key>=<value>` between commas or blanks."""
    words = read_list(text)
    for word in words:
        if not _SPARK_OPTION.fullmatch(word):
            raise BadValue("a list of options such as spark.executor.memory=2g")
    return words


def read_named_paths(text: str) -> tuple[str, ...]:
    """Words `name=/path` between commas or blanks."""
    words = read_list(text)
    for word in words:
        if not _NAMED_PATH.fullmatch(word):
            raise BadValue("a list of names and absolute paths such as corporate=/etc/ssl/corp.pem")
    return words


def read_name(text: str) -> str:
    if not text or not text.isprintable():
        raise BadValue("a name of one character or more")
    return text


def read_object_store(text: str) -> str:
    """Where an object store is; none if empty."""
    scheme, _, rest = text.partition("://")
    bad = scheme not in ("s3", "file") or not rest.strip("/") or not text.isprintable()
    if text and (bad or (scheme == "file" and not rest.startswith("/"))):
        raise BadValue("s3://bucket/prefix or file:///directory")
    return text.rstrip("/")


def read_secret(text: str, needed: bool = True, printable: bool = False) -> str:
    if needed and not text:
        raise BadValue("set: it is empty")
    return read_text(text) if printable else text


def read_schedule(text: str) -> str:
    """Five fields of cron; what they mean is for the reader of the schedule."""
    fields = text.split()
    if len(fields) != 5 or not all(re.fullmatch(r"[\d*,/A-Za-z-]+", item) for item in fields):
        raise BadValue("a schedule of five fields such as 5 * * * *")
    return " ".join(fields)


def _choice(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.lower() not in choices:
            raise BadValue("one of " + ", ".join(choices))
        return text.lower()

    return read


def _read_optional_port(text: str) -> int:
    return read_port(text, least=-1)


INDEXES = ("ram", "leveldb")
SYNC_METHODS = ("measured", "fdatasync", "syncfs")


READERS: dict[str, Callable[..., Any]] = {
    "address": read_address,
    "addresses": read_addresses,
    "count": read_count,
    "keepalive": read_keepalive,
    "index": _choice(*INDEXES),
    "sync method": _choice(*SYNC_METHODS),
    "level": _choice(*LEVELS),
    "list": read_list,
    "log format": _choice(*LOG_FORMATS),
    "memory": read_memory,
    "name": read_name,
    "named paths": read_named_paths,
    "networks": read_networks,
    "object store": read_object_store,
    "optional port": _read_optional_port,
    "path": read_path,
    "percent": read_percent,
    "port": read_port,
    "schedule": read_schedule,
    "secret": read_secret,
    "size": read_size,
    "spark options": read_spark_options,
    "text": read_text,
    "time": read_time,
    "tls login": _choice(*TLS_LOGIN),
    "tls san": _choice(*TLS_SAN),
    "tls verify": _choice(*TLS_VERIFY),
    "tls version": _choice(*TLS_VERSIONS),
    "yes or no": read_flag,
}

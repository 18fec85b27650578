"""The text of a definitions document, and its rows read with the place of what is wrong."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from broker.serving.json_nesting import TooDeep, TooWide, end_of_value
from broker.settings.bounds import BODY_VALUES_MAX, ROW_BYTES_MAX

ORDER = (
    "users",
    "vhosts",
    "permissions",
    "topic_permissions",
    "parameters",
    "global_parameters",
    "policies",
    "operator_policies",
    "exchanges",
    "queues",
    "bindings",
)
"""Sections in the order that they are carried out in: each needs only what is before it."""

OF_THE_NODE = frozenset(
    {"users", "vhosts", "permissions", "topic_permissions", "global_parameters"}
)
"""Sections that a document of one vhost does not have."""

# What a document of one vhost says about the vhost itself, and what says where it comes from.
ABOUT = frozenset(
    {
        "metadata",
        "limits",
        "tags",
        "description",
        "default_queue_type",
        "name",
        "explanation",
        "original_cluster_name",
        "original_vhost_name",
    }
)

DEPTH_MAX = 64
ROW_DEPTH_MAX = DEPTH_MAX + 2
"""A row with a member of the greatest depth."""
_AT_ONCE = 10
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1

NAMES: dict[str, tuple[str, ...]] = {
    "users": ("name",),
    "vhosts": ("name",),
    "permissions": ("user", "vhost"),
    "topic_permissions": ("user", "vhost", "exchange"),
    "parameters": ("component", "vhost", "name"),
    "global_parameters": ("name",),
    "policies": ("vhost", "name"),
    "operator_policies": ("vhost", "name"),
    "exchanges": ("vhost", "name"),
    "queues": ("vhost", "name"),
    "bindings": ("vhost", "source", "destination", "destination_type", "routing_key"),
}
"""The keys that name an object of a section."""

Sections = dict[str, list[Any]]


class Fault(Exception):
    """A document that cannot be imported; the text names the section, the place and the reason."""


class LeftOut(Exception):
    """An object, or a part of one, that is well-formed and has no counterpart here."""


def parse(text: bytes | memoryview) -> Generator[None, None, dict[str, Any]]:
    """The members of a JSON object in UTF-8, given back at the end; a step for each row of a list.
    Raises Fault."""
    reader = _Reader(memoryview(text))
    try:
        found = yield from reader.members()
    except Fault:
        yield from give_up(reader.lists)
        raise
    except ValueError as error:
        yield from give_up(reader.lists)
        raise Fault(f"not_json: {error}") from None
    return found


def give_up(lists: Iterable[Any]) -> Iterator[None]:
    """Empties lists of rows, those of a document or of the answer to it, a part a step; what is no
    list is passed over. Freed at once, 20,000 rows would hold up the loop for 10 ms."""
    for rows in lists:
        while isinstance(rows, list) and rows:
            del rows[-_AT_ONCE:]
            yield


class _Reader:
    """Reads a text row by row and decodes each by itself: to decode all of it at once would hold up
    the loop, half a millisecond for each MiB. Raises ValueError for what is no JSON."""

    def __init__(self, text: memoryview) -> None:
        self._text = text
        self._at = len(BOM_UTF8) if bytes(text[: len(BOM_UTF8)]) == BOM_UTF8 else 0
        self.lists: list[list[Any]] = []
        self._decode = json.JSONDecoder(parse_constant=_no_number).decode

    def members(self) -> Generator[None, None, dict[str, Any]]:
        found: dict[str, Any] = {}
        if not self._next():
            return found
        self._take("{", "the document must be an object, which begins with {")
        if self._next() == "}":
            self._at += 1
        else:
            while True:
                if self._next() != '"':
                    raise ValueError(f"a name was expected at byte {self._at}")
                name = self._value("a name")
                if name in found:
                    raise ValueError(f'"{name[:100]}" is in the document twice')
                self._take(":")
                if self._next() == "[":
                    found[name] = yield from self._rows(name)
                else:
                    found[name] = self._value(name[:100])
                yield
                if self._take(",}") == "}":
                    break
        if self._next():
            raise ValueError(f"text behind the end of the document at byte {self._at}")
        return found

    def _rows(self, section: str) -> Generator[None, None, list[Any]]:
        self._at += 1
        rows: list[Any] = []
        self.lists.append(rows)
        if self._next() == "]":
            self._at += 1
            return rows
        while True:
            rows.append(self._value(f"definitions: {section[:100]}[{len(rows)}]"))
            yield
            if self._take(",]") == "]":
                return rows

    def _next(self) -> str:
        """The next character that is no white space; empty at the end."""
        text, at = self._text, self._at
        while at < len(text) and text[at] in b" \n\r\t":
            at += 1
        self._at = at
        return chr(text[at]) if at < len(text) else ""

    def _take(self, expected: str, wanted: str = "") -> str:
        found = self._next()
        if not found or found not in expected:
            if found >= "\x80":
                raise ValueError(f"byte {self._at} is neither JSON nor a part of a text in UTF-8")
            wanted = wanted or f"{' or '.join(expected)} was expected at byte {self._at}"
            raise ValueError(wanted)
        self._at += 1
        return found

    def _value(self, where: str) -> Any:
        """The next one; `where` names it where a Fault is raised."""
        self._next()
        begin = self._at
        try:
            self._at = end_of_value(self._text, begin, ROW_DEPTH_MAX, BODY_VALUES_MAX)
            if self._at - begin > ROW_BYTES_MAX:
                raise Fault(f"{where} is longer than {ROW_BYTES_MAX} bytes")
            return self._decode(str(self._text[begin : self._at], "utf-8"))
        except TooDeep:
            raise Fault(f"{where} is nested over {DEPTH_MAX} levels") from None
        except TooWide:
            raise Fault(f"{where} holds over {BODY_VALUES_MAX} values") from None
        except UnicodeDecodeError as error:
            raise ValueError(f"byte {begin + error.start} is not UTF-8") from None
        except json.JSONDecodeError as error:
            at = begin + len(error.doc[: error.pos].encode())
            raise ValueError(f"{error.msg.removesuffix(' at')} at byte {at}") from None


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def sections(members: Mapping[str, Any]) -> Sections:
    """The known sections in order. Raises Fault for one that is no list."""
    found: Sections = {}
    for section in ORDER:
        rows = members.get(section)
        if rows is None:
            continue
        if not isinstance(rows, list):
            raise Fault(f"definitions: {section} is not a list")
        found[section] = rows
    return found


def unknown(members: Mapping[str, Any]) -> Iterator[str]:
    """Members that hold objects and are no section here."""
    for name, value in members.items():
        if name not in ORDER and name not in ABOUT and isinstance(value, dict | list) and value:
            yield name


class Row(NamedTuple):
    """One object of a document. Its readers raise ValueError, saying what is wrong with what."""

    section: str
    place: int
    fields: dict[str, Any]

    @property
    def where(self) -> str:
        return f"definitions: {self.section}[{self.place}]"

    def named(self) -> dict[str, Any]:
        """What names the object, as far as it is there."""
        return {
            name: self.fields[name][:256]
            for name in NAMES[self.section]
            if isinstance(self.fields.get(name), str)
        }

    def text(self, name: str) -> str:
        if name not in self.fields:
            raise ValueError(f"'{name}' is missing")
        value = self.fields[name]
        if not isinstance(value, str):
            raise ValueError(f"{name} is not text")
        return checked_text(value, name)

    def text_or(self, name: str, default: str) -> str:
        return self.text(name) if self.fields.get(name) is not None else default

    def name(self) -> str:
        found = self.text("name")
        if not found:
            raise ValueError("name is empty")
        return found

    def flag(self, name: str, default: bool) -> bool:
        value = self.fields.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise ValueError(f"{name} is neither true nor false")
        return value

    def table(self, name: str) -> dict[str, Any]:
        """A map; an empty list is what PHP and Erlang write for an empty one."""
        value = self.fields.get(name)
        if value is None or value == []:
            return {}
        if not isinstance(value, dict):
            raise ValueError(f"{name} is not an object")
        check_value(value, name)
        return value


def checked_text(value: str, name: str) -> str:
    """Raises ValueError for half a surrogate pair, which no protocol here can carry."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{name} holds half a surrogate pair") from None
    return value


def check_value(value: Any, name: str, depth: int = 1) -> None:
    """Raises ValueError for a value that cannot be kept: too deep, or a number too large."""
    if depth > DEPTH_MAX:
        raise ValueError(f"{name} is nested over {DEPTH_MAX} levels")
    if isinstance(value, dict):
        for key, item in value.items():
            checked_text(key, name)
            check_value(item, name, depth + 1)
    elif isinstance(value, list):
        for item in value:
            check_value(item, name, depth + 1)
    elif isinstance(value, str):
        checked_text(value, name)
    elif isinstance(value, int) and not INTEGER_MIN <= value <= INTEGER_MAX:
        raise ValueError(f"{name} holds a number that does not fit in 64 bits")


def words(value: Any, name: str) -> list[str]:
    """Tags from a list or from text with commas between, as RabbitMQ takes them."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise ValueError(f"{name} is neither text nor a list of texts")
    return [checked_text(part.strip(), name) for part in parts if part.strip()]

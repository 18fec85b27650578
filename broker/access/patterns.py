"""Regular expressions that users write: RE2, so that no pattern can take more than linear time."""

from __future__ import annotations

import functools
import re

import re2

from broker.settings.bounds import (
    PATTERN_CHARACTERS_MAX,
    PATTERN_MEMORY_MAX,
    PATTERN_STEPS_MAX,
    PATTERNS_KEPT_MAX,
)

STORED_MEMORY_MAX = 1 << 20
"""For patterns that were stored before there was a limit: without it those of a user would be
none."""


def _options(memory: int) -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = memory
    # Whether it matches is all that is asked: without groups RE2 needs its automaton only.
    options.never_capture = True
    return options


_small, _large = _options(PATTERN_MEMORY_MAX), _options(STORED_MEMORY_MAX)

_NOT_FIRST = "^(?!"

# After `^`, letters and digits that no quantifier follows. Only flags could give them another
# meaning, and those stand before them.
_LITERAL = re.compile(r"\^([A-Za-z0-9]+)(?![?*+{A-Za-z0-9])")


# Most users have one of these: each name has it, also an empty one and one with line breaks.
_FIND_ALL = frozenset({".*", "^.*", ".*$"})


class BadPattern(ValueError):
    """The text is no regular expression that RE2 accepts. `is_foreign`: it uses what other engines
    have and RE2 lacks, such as lookaround."""

    def __init__(self, text: str, is_foreign: bool = False) -> None:
        super().__init__(text)
        self.is_foreign = is_foreign


# How RE2 names what Perl's expressions have and it does not.
_FOREIGN = ("invalid perl operator", "invalid escape sequence", "invalid repetition size")
_POSSESSIVE = re.compile(r"bad repetition operator: [*+?}]\+")


class Pattern:
    """A compiled pattern, found anywhere in a name. An empty one finds only the empty name.

    RE2 has no lookaround, but one form of it is in many RabbitMQ set-ups, `^(?!amq\\.).*`: what
    stands first must not begin the name. It is taken apart into two patterns.

    `prefix` is what every name begins with that it finds, as far as that is seen at once.
    `steps` is the number of instructions of the compiled program: a match takes at most that
    number for each octet of the name, about 6 ns each.
    One that is stored already (`is_stored`) may take more memory than one that is set or sent.
    """

    __slots__ = ("_excluded", "_finds_all", "_search", "prefix", "steps", "text")

    def __init__(self, text: str, *, is_stored: bool = True) -> None:
        self.text = text
        parts = split_exclusion(text)
        excluded = _compile(f"^(?:{parts[0]})", is_stored) if parts else None
        wanted = _compile(f"^(?:{parts[1]})" if parts else text or "^$", is_stored)
        self.steps: int = wanted.programsize + (excluded.programsize if excluded else 0)
        self._excluded = excluded.search if excluded else None
        self._search = wanted.search
        self.prefix = _prefix(text)
        self._finds_all = text in _FIND_ALL

    @classmethod
    def sent(cls, text: str) -> Pattern:
        """A pattern that a user sets or sends now. Raises BadPattern also for one that takes too
        long to match; those that are stored already are not refused for that."""
        return _remembered(text)

    def matches(self, name: str) -> bool:
        return self._finds_all or self.matches_octets(octets_of(name))

    def matches_octets(self, octets: bytes) -> bool:
        """The same of a name in UTF-8: for who compares one with very many patterns."""
        if self._finds_all:
            return True
        if not octets.startswith(self.prefix):
            return False
        if self._excluded is not None and self._excluded(octets) is not None:
            return False
        return self._search(octets) is not None


@functools.lru_cache(maxsize=PATTERNS_KEPT_MAX)
def _remembered(text: str) -> Pattern:
    pattern = Pattern(text, is_stored=False)
    if pattern.steps > PATTERN_STEPS_MAX:
        # What is refused is not kept either.
        raise BadPattern(
            f"regular expression of {pattern.steps} steps once compiled; at most "
            f"{PATTERN_STEPS_MAX}: use fewer and smaller repetitions"
        )
    return pattern


def _prefix(text: str) -> bytes:
    """What every name begins with that a pattern finds, as far as that is seen at once: to compare
    it takes a tenth of a search."""
    found = _LITERAL.match(text)
    return found[1].encode() if found is not None and "|" not in text else b""


def split_exclusion(text: str) -> tuple[str, str] | None:
    """The parts of `^(?!excluded)rest`; None for any other pattern."""
    if not text.startswith(_NOT_FIRST) or any(odd in text for odd in ("\\Q", "[]", "[^]")):
        return None
    depth, end = 1, None
    escaped = in_class = False
    for place in range(len(_NOT_FIRST), len(text)):
        letter = text[place]
        if escaped:
            escaped = False
        elif letter == "\\":
            escaped = True
        elif in_class:
            in_class = letter != "]"
        elif letter == "[":
            in_class = True
        elif letter == "(":
            depth += 1
        elif letter == ")":
            depth -= 1
            if depth == 0 and end is None:
                end = place
            elif depth < 0:
                return None
        elif letter == "|" and depth == 0:
            # Another alternative, which the exclusion does not belong to.
            return None
    return None if end is None or depth else (text[len(_NOT_FIRST) : end], text[end + 1 :])


def _compile(text: str, is_stored: bool) -> re2._Regexp:
    if len(text) > PATTERN_CHARACTERS_MAX:
        raise BadPattern(
            f"regular expression of {len(text)} characters; at most {PATTERN_CHARACTERS_MAX}",
            is_foreign=True,
        )
    try:
        return _compiled(octets_of(text), is_stored)
    except re2.error as error:
        detail = error.args[0] if error.args else error
        if isinstance(detail, bytes):
            detail = detail.decode("utf-8", "replace")
        is_foreign = str(detail).startswith(_FOREIGN) or bool(_POSSESSIVE.match(str(detail)))
        reason = f"invalid regular expression '{text}': {detail}"
        raise BadPattern(reason, is_foreign) from None


def _compiled(text: bytes, is_stored: bool) -> re2._Regexp:
    try:
        return re2.compile(text, options=_small)
    except re2.error as error:
        if not is_stored or b"too large" not in error.args[0]:
            raise
    return re2.compile(text, options=_large)


def filled_in(pattern: str, user: str, vhost: str) -> str:
    """A pattern with the names in place of `{username}` and `{vhost}`, as text that matches only
    itself; a pattern that finds nothing if the outcome is none."""
    filled = pattern.replace("{username}", str(re2.escape(user)))
    filled = filled.replace("{vhost}", str(re2.escape(vhost)))
    try:
        Pattern(filled)
    except BadPattern:
        return ""
    return filled


def octets_of(text: str) -> bytes:
    """A name or a pattern as RE2 gets it."""
    return text.encode("utf-8", "surrogatepass")

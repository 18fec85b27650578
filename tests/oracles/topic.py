"""Topic matching as the specification words it, word by word and by recursion."""

from functools import cache


def words(key: str) -> tuple[str, ...]:
    """The words of a key; an empty key has none."""
    return tuple(key.split(".")) if key else ()


def matches(pattern: str, key: str) -> bool:
    """Whether a binding key matches a routing key: `*` is one word, `#` any number of them."""

    @cache
    def fits(pattern: tuple[str, ...], key: tuple[str, ...]) -> bool:
        if not pattern:
            return not key
        if pattern[0] == "#":
            return fits(pattern[1:], key) or (bool(key) and fits(pattern, key[1:]))
        return bool(key) and pattern[0] in ("*", key[0]) and fits(pattern[1:], key[1:])

    return fits(words(pattern), words(key))

"""Where settings come from: the command line, the environment, the INI file.

Each function gives the values it found by the setting's name, read and checked one by one;
`broker.settings.config` puts them in order.
"""

from __future__ import annotations

import configparser
import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker.process import lifetime, pulse
from broker.settings import quantities
from broker.settings.quantities import BadValue

DEFAULT_FILE = Path("/etc/leveret/leveret.ini")
ENVIRONMENT_PREFIX = "LEVERET_"
IN_FORCE = "LEVERET_IN_FORCE"
"""The variable in which the supervisor gives its children the settings as they are in force."""
HIDDEN = quantities.HIDDEN


class ConfigError(Exception):
    """A configuration that cannot be used; the text says what is wrong, where, and what fits."""


@dataclass(frozen=True)
class Setting:
    """One row of the table, as the documents and the parsers see it."""

    name: str
    section: str
    default: Any
    kind: str
    text: str
    read: Callable[[str], Any]
    reload: bool
    """Whether SIGHUP changes it; else a new value takes effect after a restart."""
    secret: bool
    """Whether its value is a password, or holds one: it is never shown."""

    @property
    def option(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.upper()

    @property
    def is_flag(self) -> bool:
        return self.kind == "yes or no"

    def shown_default(self) -> str:
        """The default as a person would write it into the INI file; empty for none."""
        return quantities.shown(self.default, self.kind)

    def shown(self, value: Any) -> str:
        """A value of this setting as `shown_default` shows the default; never a secret."""
        return self.shown_text(quantities.shown(value, self.kind))

    def shown_text(self, text: str) -> str:
        """A value as a person has written it, without what is secret in it."""
        if self.secret:
            return HIDDEN if text else ""
        return quantities.without_secrets(text) if self.kind == "spark options" else text

    def public(self, value: Any) -> Any:
        """The value itself, without what is secret in it."""
        if self.secret:
            return HIDDEN if value else value
        if self.kind == "spark options":
            return tuple(quantities.without_secrets(word) for word in value)
        return value


def _read(item: Setting, text: str, where: str) -> Any:
    try:
        return item.read(text)
    except BadValue as error:
        shown = "the value" if item.secret or item.shown_text(text) != text else repr(text)
        raise ConfigError(f"{where}: {shown} is not {error}") from None


def from_command_line(
    argv: Sequence[str], table: Mapping[str, Setting]
) -> tuple[dict[str, Any], str | None]:
    """Values by setting's name, and the file that `--config` names. Raises `ConfigError`."""
    by_option = {item.option: item for item in table.values()}
    values: dict[str, Any] = {}
    file: str | None = None
    words = iter(argv)
    for word in words:
        option, equals, text = word.partition("=")
        item = by_option.get(option)
        if item is None and option != "--config":
            raise ConfigError(
                f"unknown option {option}{_nearest(option, [*by_option, '--config'])}"
            )
        if not equals:
            if item is not None and item.is_flag:
                text = "yes"
            else:
                try:
                    text = next(words)
                except StopIteration:
                    raise ConfigError(f"{option}: a value is missing after it") from None
        if item is None:
            file = text
        else:
            values[item.name] = _read(item, text, option)
    return values, file


def from_environment(
    environ: Mapping[str, str], table: Mapping[str, Setting], warnings: list[str]
) -> dict[str, Any]:
    """Values of the `LEVERET_*` variables; unknown ones are warnings. Raises `ConfigError`."""
    by_variable = {item.variable: item for item in table.values()}
    # Read by the build and the tests, not by the appliance.
    others = {
        "LEVERET_CONFIG",
        "LEVERET_BOUNDSCHECK",
        *(lifetime.VARIABLE, pulse.VARIABLE, IN_FORCE),
    }
    values: dict[str, Any] = {}
    for name in sorted(environ):
        item = by_variable.get(name)
        if item is not None:
            values[item.name] = _read(item, environ[name], name)
        elif name.startswith(ENVIRONMENT_PREFIX) and not (
            name in others or name.startswith(ENVIRONMENT_PREFIX + "TEST_")
        ):
            warnings.append(f"unknown variable {name}{_nearest(name, by_variable)}; it is ignored")
    return values


def from_file(
    file: str | None,
    table: Mapping[str, Setting],
    sections: Mapping[str, str],
    warnings: list[str],
) -> dict[str, Any]:
    """Values of the INI file; unknown keys are warnings. Raises `ConfigError`."""
    if file == "" or (file is None and not DEFAULT_FILE.exists()):
        return {}
    path = DEFAULT_FILE if file is None else Path(file)
    parser = configparser.ConfigParser(interpolation=None, default_section="")
    try:
        parser.read_string(path.read_text(encoding="utf-8"), source=str(path))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"cannot read {path}: it is not UTF-8 text") from None
    except configparser.Error as error:
        raise ConfigError(f"cannot read {path}: {_fault(error)}") from None
    values: dict[str, Any] = {}
    for section in parser.sections():
        if section not in sections:
            known = ", ".join(sections)
            raise ConfigError(f"{path}: unknown section [{section}]; there are {known}")
        for key, text in parser.items(section):
            item = table.get(key)
            if item is None:
                warnings.append(
                    f"{path}: unknown key {key} in [{section}]{_nearest(key, table)}; it is ignored"
                )
            elif item.section != section:
                warnings.append(
                    f"{path}: {key} belongs into [{item.section}], not into [{section}];"
                    " it is ignored"
                )
            else:
                value = _read(item, text, f"{path}: {key}")
                if isinstance(value, Path):
                    value = path.parent / value
                values[key] = value
    return values


def _fault(error: configparser.Error) -> str:
    """What is wrong in a file, without its lines: a password may be in them."""
    if isinstance(error, configparser.MissingSectionHeaderError):
        return f"line {error.lineno} stands before the first [section]"
    if isinstance(error, configparser.ParsingError):
        numbers = ", ".join(str(number) for number, _ in error.errors)
        plural = "" if len(error.errors) == 1 else "s"
        return f"neither [section] nor name = value in line{plural} {numbers}"
    return " ".join(str(error).split())


def _nearest(name: str, names: Any) -> str:
    near = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""

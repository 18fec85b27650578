"""Settings that an operator changed until the next start, without their files."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING, Any

from broker.process import logs
from broker.settings.config import settings

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.settings.config import Config

log = logging.getLogger("leveret.broker")

NAMES = ("memory_high_watermark", "disk_free_limit", "log_level")
"""Those that can be changed so."""


class Overrides:
    """They outlast a reload of the settings (SIGHUP), and end with the process."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._values: dict[str, Any] = {}
        self._configured: dict[str, Any] = {}
        """What the settings say of those that are changed."""

    def put(self, name: str, text: str) -> Any:
        """Puts a value into force; returns it as it was read. Raises ValueError, which says what it
        should be."""
        item = next(one for one in settings() if one.name == name)
        value = item.read(text)
        config = self._broker.config
        self._configured.setdefault(name, getattr(config, name))
        self._values[name] = value
        before = getattr(config, name)
        self._broker.config = config = dataclasses.replace(config, **{name: value})
        if name == "log_level":
            logs.configure(
                "broker", config.log_level, config.log_format, config.log_lines_per_second
            )
        else:
            self._broker.watch.configure(config)
        log.warning(
            "settings: %s is %s until the next start, was %s",
            name,
            item.shown(value),
            item.shown(before),
        )
        return value

    def without(self, config: Config) -> Config:
        """What the settings say, as if nothing were changed."""
        return dataclasses.replace(config, **self._configured)

    def over(self, config: Config) -> Config:
        """These settings, read anew, with what is changed."""
        self._configured = {name: getattr(config, name) for name in self._values}
        return dataclasses.replace(config, **self._values)

    def rows(self) -> dict[str, dict[str, Any]]:
        """By name: the `value` in force and the one that is `configured`."""
        return {
            name: {"value": value, "configured": self._configured[name]}
            for name, value in self._values.items()
        }

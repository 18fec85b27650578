"""SIGHUP: the settings are read again from where they came, and those that can change do.

Which can is a column of the table in `broker.settings.config`. A configuration that cannot be used
changes nothing: the old values stay in force and the log says why. Supervisor, broker, web and
reports do this alike, each for itself.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from typing import NamedTuple

from broker.process import logs
from broker.settings.config import Config, load, settings

# A listener for TLS is opened at the start or not at all.
OPENS_LISTENERS = ("tls_cert_file", "tls_key_file")


class Reloaded(NamedTuple):
    """`config` is what counts now; the rest are names of settings whose values changed: those that
    count at once, and those that wait for the next start."""

    config: Config
    at_once: list[str]
    waiting: list[str]


def read_again(config: Config, environ: Mapping[str, str]) -> Reloaded:
    """What the same command line, environment and file say now. Raises `ConfigError`."""
    return merged(config, load(config.argv, environ))


def merged(old: Config, new: Config) -> Reloaded:
    """The old configuration with what may change of the new one."""
    changed = [item for item in settings() if getattr(old, item.name) != getattr(new, item.name)]
    fixed = () if bool(old.tls_cert_file) is bool(new.tls_cert_file) else OPENS_LISTENERS
    at_once = [item.name for item in changed if item.reload and item.name not in fixed]
    waiting = [item.name for item in changed if item.name not in at_once]
    values = {name: getattr(new, name) for name in at_once}
    config = dataclasses.replace(old, **values, warnings=new.warnings)
    return Reloaded(config, at_once, waiting)


def tell(log: logging.Logger, old: Config, reloaded: Reloaded) -> None:
    """Says in the log what a reload has changed, and what it could not."""
    for warning in reloaded.config.warnings:
        log.warning("settings: %s", warning)
    table = {item.name: item for item in settings()}
    for name in reloaded.at_once:
        item = table[name]
        before, after = (
            item.shown(getattr(config, name)) or "none" for config in (old, reloaded.config)
        )
        log.info("settings: %s is %s now, was %s", name, after, before)
    if reloaded.waiting:
        log.warning(
            "settings: %s changed; takes effect after a restart", ", ".join(reloaded.waiting)
        )
    if not reloaded.at_once:
        log.info("settings read again: no setting changed that takes effect without a restart")


def refuse(log: logging.Logger, error: Exception) -> None:
    """Says in the log that a reload has changed nothing, and why."""
    log.error("settings are not read again, the old ones stay: %s", error)


def follow_log(part: str, reloaded: Reloaded) -> None:
    """Puts changed settings of the log into force."""
    if {"log_level", "log_format", "log_lines_per_second"} & set(reloaded.at_once):
        config = reloaded.config
        logs.configure(part, config.log_level, config.log_format, config.log_lines_per_second)


def follow(log: logging.Logger, part: str, reloaded: Reloaded) -> None:
    """For the parts beside the broker, which tells what has changed: the log, and one line."""
    follow_log(part, reloaded)
    log.info("settings are read again")

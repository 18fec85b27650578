"""Imports every module that enters commands, so that the table is whole."""

from management.ctl import (
    access,
    connections,
    definitions,
    federation,
    health,
    lists,
    node,
    objects,
    policies,
    processes,
    shell,
    shovels,
    streams,
    tiers,
    transfers,
)

__all__ = [
    "access",
    "connections",
    "definitions",
    "federation",
    "health",
    "lists",
    "node",
    "objects",
    "policies",
    "processes",
    "shell",
    "shovels",
    "streams",
    "tiers",
    "transfers",
]

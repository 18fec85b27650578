"""Every path of a data directory, and what becomes of it where a second directory follows this one.

*Replicated* is what the appliance is: it passes the store's own functions (`broker.store.files`),
whose observer sees every operation: the same operations carried out elsewhere make the same files.
*Local* belongs to this machine or this run and means nothing elsewhere. *Rebuilt* is found out
again from replicated files.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Class = Literal["replicated", "local", "rebuilt"]


class Row(NamedTuple):
    """Paths and their class. `pattern` is of a path relative to the data directory: `<id>` stands
    for the 16 hexadecimal digits of an incarnation, `<n>` for a number of ten digits, `*` for
    anything within a name, `**` for anything below."""

    pattern: str
    kind: Class
    what: str

    def matches(self, path: str) -> bool:
        return _expression(self.pattern).fullmatch(path) is not None


class UnknownPath(LookupError):
    """The table has no such path."""


PATHS = (
    Row("run/**", "local", "addresses, the files of pages, runs of reports that are under way"),
    Row("snapshot/**", "local", "hard links for a backup that is being made"),
    Row("*.sock", "local", "sockets"),
    Row("lock", "local", "held by the running broker"),
    Row("reserve", "local", "space for a full disk"),
    Row("sync_failed", "local", "the mark of a disk that failed"),
    Row("last_mount", "local", "on which mount of the file system the last run worked"),
    Row("incomplete_backup", "local", "the mark of a copy that is not whole"),
    Row("appliance_id", "local", "whose data this is; a copy gets another one"),
    Row("node_id", "local", "which machine's directory this is; a copy gets another one"),
    Row("secret_key", "local", "signs the cookies of sessions"),
    Row("secrets_key", "local", "encrypts passwords at rest"),
    Row("quarantine/**", "local", "copies of what was damaged"),
    Row("lost+found", "local", "of the file system, where the directory is all of a volume"),
    Row("objects/**", "local", "the object store where the settings name none"),
    Row("reports/lock", "local", "held by the running reports process"),
    Row("schema_version", "replicated", "the version of the layout"),
    Row("boots", "replicated", "how many times a broker started"),
    Row("*.json", "replicated", "virtual hosts, users, permissions, policies, parameters and such"),
    Row("definitions_loaded", "replicated", "which file of definitions was loaded"),
    Row("tiers.journal", "replicated", "what was written to the object store"),
    Row("history/*", "replicated", "samples of charts"),
    Row("usage/*.jsonl", "replicated", "the usage feed of an hour that is over"),
    Row("usage/*.jsonl.open", "replicated", "the usage feed of the hour under way"),
    Row("usage/compacted/**", "replicated", "lines of the feed, of earlier programs"),
    Row("usage/tables/**", "replicated", "hours, days and months of usage"),
    Row("reports/**", "replicated", "records and results of reports, plans, tariff, closed months"),
    Row("vhosts/<id>/transient/**", "local", "queues that end with the broker"),
    Row("vhosts/<id>/definitions.journal", "replicated", "exchanges, queues and bindings"),
    Row("vhosts/<id>/queues/<id>/msgs.<n>", "replicated", "messages of a queue or a stream"),
    Row("vhosts/<id>/queues/<id>/acks.<n>", "replicated", "which messages are settled"),
    Row("vhosts/<id>/queues/<id>/meta.<n>", "replicated", "the summary of a finished segment"),
    Row("vhosts/<id>/queues/<id>/offsets.<n>", "replicated", "how far consumers of a stream are"),
    Row("vhosts/<id>/queues/<id>/tier.journal", "replicated", "which segments are objects"),
    Row("vhosts/<id>/bodies/*.bdy", "replicated", "bodies that several queues share"),
    Row("vhosts/<id>/bodies/*.tmp", "replicated", "bodies that are being collected"),
    Row("vhosts/<id>/bodies/*.toc", "replicated", "the table of contents of a file of bodies"),
    Row("vhosts/<id>/bodies/clean", "rebuilt", "the mark of a clean stop"),
    Row("vhosts/<id>/bodies/index/**", "rebuilt", "where bodies are, in LevelDB"),
    Row("vhosts/<id>/bodies/index.*", "rebuilt", "where bodies are"),
    Row("vhosts/<id>/bodies/bloom", "rebuilt", "which bodies the index may have"),
    Row("vhosts/<id>/delayed/<id>/*", "replicated", "delayed messages"),
    Row("vhosts/<id>/schedule/<id>/due.<n>", "replicated", "when delayed messages are due"),
    Row("vhosts/<id>/deduplication/<id>/ids.<n>", "replicated", "ids of messages that were seen"),
    Row("vhosts/<id>/index/unsealed/<n>", "rebuilt", "keys of messages of streams, being filled"),
    Row("vhosts/<id>/index/**", "replicated", "keys of messages of streams"),
)
"""In this order: the first row whose pattern matches counts."""


def row_of(path: str) -> Row:
    """The row of a file's path, relative to the data directory. A file that is to be renamed (its
    name ends with .tmp or .part) is what it becomes. Raises UnknownPath."""
    for name in (path, re.sub(r"\.(tmp|part)$", "", path)):
        for row in PATHS:
            if row.matches(name):
                return row
    raise UnknownPath(
        f"{path} is not in the table of paths (broker/store/directory/paths.py): say there whether "
        "it is replicated"
    )


_PARTS = {"**": ".+", "*": "[^/]*", "<id>": "[0-9a-f]{16}", "<n>": r"\d{10}"}
_expressions: dict[str, re.Pattern[str]] = {}


def _expression(pattern: str) -> re.Pattern[str]:
    if pattern not in _expressions:
        pieces = re.split(r"(\*\*|\*|<id>|<n>)", pattern)
        _expressions[pattern] = re.compile("".join(_PARTS.get(x, re.escape(x)) for x in pieces))
    return _expressions[pattern]

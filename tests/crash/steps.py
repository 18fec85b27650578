"""What the store does in steps, and which recorded operation is which step: so that a run can count
the crash states that follow each of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.crash.profiles import OWN_FILE

Event = tuple[str, str | None, int, int, int]

BODY_FILE = re.compile(r"/bodies/(\d{10})-(\d{10})\.(\d+)\.(bdy|toc|tmp)$")
LOG_FILE = re.compile(r"/(queues|delayed|schedule)/[0-9a-f]{16}/(msgs|acks|meta|offsets|due)\.\d+$")

MARKS = ("part of a round", "index flush", "rotation begins", "rotation step", "rotation ends")
LOG_STEPS = {
    ("queues", "msgs", "open"): "segment begins",
    ("queues", "msgs", "write"): "records are written",
    ("queues", "msgs", "sync"): "segment is synced",
    ("queues", "acks", "write"): "acks are written",
    ("queues", "acks", "unlink"): "acks go behind their segment",
    ("queues", "meta", "write_file"): "sealed segment has a summary",
    ("queues", "meta", "write"): "sealed segment of a stream has a summary",
    ("queues", "meta", "unlink"): "summary goes",
    ("queues", "msgs", "unlink"): "segment goes",
    ("queues", "msgs", "punch"): "hole is made",
    ("queues", "offsets", "open"): "kept places begin anew",
    ("queues", "offsets", "write"): "kept places are written",
    ("queues", "offsets", "sync"): "kept places are synced",
    ("queues", "offsets", "unlink"): "old kept places go",
    ("delayed", "msgs", "write"): "delayed message is written",
    ("delayed", "msgs", "unlink"): "segment of delayed messages goes",
    ("schedule", "due", "write"): "run of the timing index is written",
    ("schedule", "due", "sync"): "run of the timing index is synced",
    ("schedule", "due", "unlink"): "run of the timing index goes",
}
BODY_STEPS = {
    ("bdy", "write", False): "bodies are written",
    ("bdy", "sync", False): "body file is synced",
    ("toc", "write_file", False): "body file is sealed",
    ("bdy", "unlink", False): "body file goes",
    ("toc", "unlink", False): "table of contents goes",
    ("tmp", "write", True): "collection copies",
    ("tmp", "sync", True): "collection is synced",
    ("toc", "write_file", True): "collection has a table of contents",
    ("bdy", "rename", True): "collection is committed",
    ("bdy", "unlink", True): "collected file is collected again",
}
PLAIN_STEPS = {
    ("definitions.journal", "write"): "journal grows",
    ("definitions.journal", "sync"): "journal is synced",
    ("definitions.journal.tmp", "write"): "journal is written anew",
    ("definitions.journal.tmp", "sync"): "new journal is synced",
    ("definitions.journal", "rename"): "new journal is in place",
    ("clean.tmp", "write"): "marker of a clean stop is written",
    ("clean", "rename"): "marker of a clean stop is in place",
    ("clean", "unlink"): "marker of a clean stop is taken",
    ("bloom", "rename"): "filter is saved",
    ("index.ram", "write"): "index in memory is saved",
    ("index.sums", "rename"): "sums of the index are saved",
    ("bloom", "unlink"): "index is opened or built",
}
SHAPES = ("body has a file of its own", "several files are merged", "one file is rewritten")

STEPS = frozenset(
    (*MARKS, *SHAPES, *LOG_STEPS.values(), *BODY_STEPS.values(), *PLAIN_STEPS.values())
)
"""Every step that a run has to come by."""


def steps_of(event: Event) -> Iterator[str]:
    """The steps that an operation is."""
    kind, path, _, length, error = event
    if error:
        return
    if path is None:
        if kind in MARKS:
            yield kind
        return
    if found := LOG_FILE.search(path):
        key = found[1], found[2], kind
        if key in LOG_STEPS:
            yield LOG_STEPS[key]
    elif found := BODY_FILE.search(path):
        merged = found[3] != "0"
        step = BODY_STEPS.get((found[4], kind, merged))
        if step is not None:
            yield step
        if found[4] == "bdy" and kind == "write" and length >= OWN_FILE:
            yield SHAPES[0]
        if found[4] == "bdy" and kind == "rename":
            yield SHAPES[1] if found[1] != found[2] else SHAPES[2]
    else:
        step = PLAIN_STEPS.get((path.rpartition("/")[2], kind))
        if step is not None:
            yield step

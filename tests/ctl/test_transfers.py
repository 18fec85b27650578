"""Commands that move and copy messages."""

from __future__ import annotations

import time

from tests.ctl.conftest import Ctl
from tests.ctl.test_commands import name, rows

__all__ = ["name"]


def test_it_moves_and_copies_messages(ctl: Ctl, name: str) -> None:
    other = f"{name}-other"
    for queue in (name, other):
        assert ctl("create_queue", queue, "--durable").status == 0
    for number in range(4):
        assert ctl("publish_message", "amq.default", name, str(number)).status == 0
    said = ctl("preview_transfer", name, "--routing-key", "ctl").out
    assert "4 of the first 4 messages match; 4 are ready" in said
    assert "was started" in ctl("copy_messages", name, other, "--limit", "1").out
    assert "was started" in ctl("move_messages", name, other, "--older-than", "0").out
    until = time.monotonic() + 60
    while any(
        row["source"] == name and row["state"] != "finished" for row in rows(ctl, "list_transfers")
    ):
        assert time.monotonic() < until
    found = [row for row in rows(ctl, "list_transfers") if row["source"] == name]
    assert [(row["mode"], row["handed_over"]) for row in found] == [("move", 4), ("copy", 1)]
    got = rows(ctl, "get_messages", other, "--count", "10")
    assert [row["payload"] for row in got] == ["0", "0", "1", "2", "3"]
    assert ctl("stop_transfer", str(found[0]["id"])).status == 0
    assert found[0]["id"] not in [row["id"] for row in rows(ctl, "list_transfers")]
    assert ctl("stop_transfer", str(found[0]["id"])).status == 69
    assert ctl("move_messages", name, name).status == 65


def test_it_replays_pauses_and_resumes(ctl: Ctl, name: str) -> None:
    other = f"{name}-other"
    index = '{"x-queue-type": "stream", "x-stream-index": "message_id"}'
    assert ctl("create_queue", name, "--durable", "--arguments", index).status == 0
    assert ctl("create_queue", other, "--durable").status == 0
    for number in range(4):
        wanted = f'{{"message_id": "m{number % 2}"}}'
        said = ctl("publish_message", "amq.default", name, str(number), "--properties", wanted)
        assert said.status == 0, said
    said = ctl("replay_messages", name, other, "--from", "1", "--to", "2", "--rate", "1")
    assert "replays 2 messages" in said.out
    (row,) = [row for row in rows(ctl, "list_transfers") if row["source"] == name]
    id = str(row["id"])
    # It is over in two seconds, or not yet.
    assert ctl("pause_transfer", id).status in (0, 65)
    assert ctl("resume_transfer", id, "--rate", "1000").status in (0, 65)
    until = time.monotonic() + 60
    said = ctl("replay_messages", name, other, "--search", "m1 since 1h")
    assert "replays 2 messages" in said.out
    while any(
        row["source"] == name and row["state"] != "finished" for row in rows(ctl, "list_transfers")
    ):
        assert time.monotonic() < until
    got = rows(ctl, "get_messages", other, "--count", "10")
    assert sorted(row["payload"] for row in got) == ["1", "1", "2", "3"]
    said = ctl("replay_messages", name, other, "--from", "noon")
    assert said.status == 64 and "'noon' is no time" in said.err
    said = ctl("replay_messages", name, other, "--search", "m1 since 1h", "--from", "yesterday")
    assert said.status == 64 and "there twice" in said.err
    assert ctl("pause_transfer", id).status == 65

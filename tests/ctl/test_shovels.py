"""Commands on shovels, at a broker without the process that runs them."""

from __future__ import annotations

import json

from tests.ctl.conftest import Ctl
from tests.ctl.test_commands import name, rows

__all__ = ["name"]


def test_it_defines_pauses_and_removes_a_shovel(ctl: Ctl, name: str) -> None:
    definition = {
        "src-uri": "amqp://",
        "src-queue": name,
        "dest-uri": "amqp://ann:s3cret@127.0.0.1:1",
        "dest-queue": name,
    }
    assert ctl("add_shovel", name, json.dumps(definition)).status == 0
    (row,) = [row for row in rows(ctl, "shovel_status") if row["name"] == name]
    assert (row["state"], row["message_count"]) == ("starting", 0)
    assert "s3cret" not in ctl("shovel_status").out + ctl("list_shovel").out
    for command in ("pause_shovel", "resume_shovel", "restart_shovel"):
        assert ctl(command, name).status == 0
    assert ctl("pause_shovel", f"{name}-other").status == 69
    refused = ctl("add_shovel", name, '{"src-uri": "amqp://", "dest-uri": "amqp://"}')
    assert refused.status == 65
    assert "Must specify 'src-exchange' or 'src-queue'" in refused.err
    assert ctl("delete_shovel", name).status == 0
    assert name not in [row["name"] for row in rows(ctl, "shovel_status")]

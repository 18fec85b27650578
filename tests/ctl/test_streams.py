"""Commands on streams."""

from __future__ import annotations

from tests.ctl.conftest import Ctl
from tests.ctl.test_commands import name, rows

__all__ = ["name"]


def test_it_finds_messages_of_a_stream(ctl: Ctl, name: str) -> None:
    index = '{"x-queue-type": "stream", "x-stream-index": "message_id"}'
    assert ctl("create_queue", name, "--durable", "--arguments", index).status == 0
    for number in range(4):
        said = ctl(
            "publish_message", "amq.default", name, str(number),
            "--properties", f'{{"message_id": "m{number % 2}"}}',
        )  # fmt: skip
        assert said.status == 0, said
    found = rows(ctl, "search_stream", name, "m1")
    assert [(row["offset"], row["payload"]) for row in found] == [(3, "3"), (1, "1")]
    found = rows(ctl, "search_stream", name, "message_id=m0 since 1h")
    assert [row["offset"] for row in found] == [2, 0]
    assert len(rows(ctl, "search_stream", name, "m0", "--count", "1")) == 1
    assert rows(ctl, "search_stream", name, "m0 until yesterday") == []
    said = ctl("search_stream", name, "m0 since noon")
    assert said.status == 64 and "'noon' is no time" in said.err
    assert ctl("search_stream", name, "other=1").status == 65


def test_it_finds_records_of_the_history(ctl: Ctl, name: str) -> None:
    assert ctl("create_queue", name, "--durable").status == 0
    definition = '{"history": "headers", "history-keys": "message_id"}'
    policy = f"keep-{name}"
    assert ctl("set_policy", policy, f"^{name}$", definition).status == 0
    said = ctl("publish_message", "amq.default", name, "x", "--properties", '{"message_id": "h1"}')
    assert said.status == 0, said
    (row,) = rows(ctl, "search_history", "message_id=h1 since 1h")
    assert (row["queues"], row["outcome"], row["payload"]) == ([name], "routed", None)
    assert ctl("search_history", "h1 since noon").status == 64
    assert ctl("clear_policy", policy).status == 0
    assert ctl("delete_queue", "amq.history").status == 0

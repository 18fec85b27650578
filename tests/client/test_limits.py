"""How long frames may be: those that come, and those that are sent."""

from __future__ import annotations

import pytest

from broker.client.errors import ProtocolError
from broker.fields import properties
from broker.wire.argument_lists import frame
from broker.wire.method_frames import method_frame
from tests.client.test_core import (
    TOKEN,
    channelled,
    consuming,
    delivery,
    events,
    header,
    sent,
)


def test_it_takes_a_content_header_that_is_longer_than_a_frame() -> None:
    """A broker sends one where dead-lettering has added to what a publisher sent."""
    core, _, consumer = consuming()
    listed = properties.encode({"headers": {"pad": "x" * 200_000}})
    whole = delivery(1, b"")
    start = whole[: len(whole) - len(header(0))]
    core.feed(start + header(1, listed)[:100_000])
    core.feed(header(1, listed)[100_000:] + frame(3, 1, b"b") + delivery(2, b"next"))
    assert events(core) == [("deliveries", consumer)]
    first, second = consumer.batch.messages()
    assert (first.properties, first.body, second.body) == (listed, b"b", b"next")


@pytest.mark.parametrize("kind", [1, 3])
def test_other_frames_are_no_longer_than_was_agreed_on(kind: int) -> None:
    core, _, _ = consuming()
    core.feed(frame(kind, 1, bytes(131_065)))
    ((event, error),) = events(core)
    assert event == "closed"
    assert "a frame of 131073 bytes; 131072 were agreed on" in str(error)


def test_a_content_header_has_an_end_too() -> None:
    core, _, _ = consuming()
    core.feed(b"\x02\0\x01" + (64 * 1024 * 1024 + 1).to_bytes(4, "big"))
    ((event, error),) = events(core)
    assert (event, type(error)) == ("closed", ProtocolError)


def test_what_does_not_fit_has_no_number_and_waits_for_no_confirm() -> None:
    core, channel = channelled()
    channel.select_confirms()
    with pytest.raises(ValueError, match="longer than a frame"):
        channel.publish(b"", b"", bytes(131_072 - 19), b"")
    assert channel.unconfirmed is not None
    assert channel.unconfirmed.count == 0
    assert channel.publish(b"", b"", bytes(131_072 - 20), b"") == 1
    assert len(core.take_output()) > 131_072


def test_it_sends_no_method_that_is_longer_than_a_frame() -> None:
    core, channel = channelled()
    for send in (channel.send, lambda name, **given: channel.request(name, TOKEN, **given)):
        with pytest.raises(ValueError, match="longer than a frame of 131072"):
            send("queue.declare", queue="q", arguments={"pad": "x" * 131_072})
    assert sent(core) == []
    channel.request("queue.declare", "next", queue="q")
    core.feed(method_frame(1, "queue.declare-ok", queue="q"))
    ((kind, token, _),) = events(core)
    assert (kind, token) == ("reply", "next")

"""The frames of a browser, taken apart in C, beside the `websockets` library's own parser."""

from __future__ import annotations

import random

import pytest
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side, State

from broker.serving.websocket_frames import FrameReader

MESSAGE_MAX = 100_000


def taken(reader: FrameReader, data: bytes, cut: int = 1 << 20) -> bytes:
    """What the reader hands on of data that comes in chunks of `cut` bytes."""
    content = b""
    for start in range(0, len(data), cut):
        chunk = bytearray(data[start : start + cut])
        content += chunk[: reader.take(chunk, len(chunk))]
    return content


def masked(opcode: int, data: bytes = b"", *, fin: bool = True) -> bytes:
    return Frame(Opcode(opcode), data, fin).serialize(mask=True)


def referee(data: bytes) -> tuple[bytes, int | None]:
    """What the library makes of it: content of data frames, code of the close that it sends."""
    protocol = Protocol(Side.SERVER, state=State.OPEN, max_size=MESSAGE_MAX)
    protocol.receive_data(data)
    content = b""
    for event in protocol.events_received():
        assert isinstance(event, Frame)
        if event.opcode in (Opcode.BINARY, Opcode.CONT):
            content += event.data
    sent = protocol.close_sent
    return content, None if sent is None else sent.code


@pytest.mark.parametrize(
    ("data", "content"),
    [
        # The examples of RFC 6455, section 5.7, as binary messages.
        (b"\x82\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", b"Hello"),
        (b"\x02\x83\x37\xfa\x21\x3d\x7f\x9f\x4d\x80\x82\x3d\x21\xfa\x37\x51\x4e", b"Hello"),
        (b"\x82\x80\x01\x02\x03\x04", b""),
    ],
)
@pytest.mark.parametrize("cut", [1, 2, 3, 7, 100])
def test_it_hands_on_the_examples_of_the_standard(data: bytes, content: bytes, cut: int) -> None:
    assert taken(FrameReader(MESSAGE_MAX), data, cut) == content


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 125, 126, 127, 65_535, 65_536, MESSAGE_MAX])
@pytest.mark.parametrize("cut", [1, 13, 4096, 1 << 20])
def test_content_of_each_length_arrives_whole(size: int, cut: int) -> None:
    content = random.Random(size).randbytes(size)
    reader = FrameReader(MESSAGE_MAX)
    assert taken(reader, masked(2, content) + masked(2, b"next"), cut) == content + b"next"
    assert (reader.frames, reader.fault, reader.close) == (2, 0, None)


def test_content_of_a_message_that_is_not_whole_is_handed_on_at_once() -> None:
    reader = FrameReader(MESSAGE_MAX)
    frame = masked(2, b"0123456789")
    assert taken(reader, frame[:10]) == b"0123"
    assert taken(reader, frame[10:]) == b"456789"


def test_of_several_pings_the_newest_is_to_be_answered() -> None:
    reader = FrameReader(MESSAGE_MAX)
    data = masked(2, b"a", fin=False) + masked(9, b"one") + masked(0, b"b") + masked(9, b"two")
    assert taken(reader, data + masked(10, b"pong"), 5) == b"ab"
    assert reader.take_ping() == b"two"
    assert reader.take_ping() is None
    assert (reader.frames, reader.empty) == (5, 3)


def test_nothing_behind_a_close_is_taken() -> None:
    reader = FrameReader(MESSAGE_MAX)
    goodbye = masked(8, b"\x03\xe8done")
    assert taken(reader, masked(2, b"a") + goodbye + masked(2, b"b")) == b"a"
    assert reader.close == goodbye


FAULTS = {
    "a message within another": (masked(2, b"x", fin=False) + masked(2, b"y"), 1002),
    "a continuation of nothing": (masked(0, b"x"), 1002),
    "a continuation behind the end": (masked(2, b"x") + masked(0, b"y"), 1002),
    "RSV1": (b"\xc2\x81\0\0\0\0x", 1002),
    "RSV2": (b"\xa2\x81\0\0\0\0x", 1002),
    "RSV3": (b"\x92\x81\0\0\0\0x", 1002),
    **{
        f"opcode {opcode}": (bytes([0x80 | opcode, 0x81]) + bytes(5), 1002)
        for opcode in (*range(3, 8), *range(11, 16))
    },
    "not masked": (b"\x82\x01x", 1002),
    "a ping of 126 bytes": (b"\x89\xfe\x00\x7e" + bytes(4 + 126), 1002),
    "a ping in fragments": (b"\x09\x80\0\0\0\0", 1002),
    "a long message": (masked(2, bytes(MESSAGE_MAX + 1)), 1009),
    "long fragments": (masked(2, bytes(MESSAGE_MAX), fin=False) + masked(0, b"x"), 1009),
    "the longest length": (b"\x82\xff" + b"\xff" * 8 + bytes(4), 1009),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("cut", [1, 1 << 20])
def test_what_is_wrong_gets_the_code_that_the_library_gives(fault: str, cut: int) -> None:
    data, code = FAULTS[fault]
    reader = FrameReader(MESSAGE_MAX)
    content = taken(reader, data, cut)
    assert reader.fault == code
    assert reader.reason
    told, its_code = referee(data)
    assert its_code == code
    assert content == told


def test_text_is_refused_because_amqp_is_binary() -> None:
    reader = FrameReader(MESSAGE_MAX)
    assert taken(reader, masked(1, b"hello")) == b""
    assert (reader.fault, reader.reason) == (1003, "AMQP is binary")


@pytest.mark.parametrize("seed", range(60))
def test_it_takes_what_the_library_takes(seed: int) -> None:
    """Games of frames, some of them damaged, cut anywhere."""
    game = random.Random(seed)
    data = b""
    is_open = False
    for _ in range(40):
        content = game.randbytes(game.choice((0, 1, 5, 125, 126, 300, 70_000)))
        if game.random() < 0.2:
            data += masked(game.choice((9, 10)), content[:125])
            continue
        fin = game.random() < 0.6
        data += masked(0 if is_open else 2, content, fin=fin)
        is_open = not fin
    if seed % 3 == 0:
        at = game.randrange(len(data))
        data = data[:at] + game.randbytes(1) + data[at + 1 :]
    told, code = referee(data)
    reader = FrameReader(MESSAGE_MAX)
    content = taken(reader, data, game.choice((1, 50, 1000, 1 << 20)))
    if reader.fault in (0, code):
        # Content of a frame that is not whole is handed on, which the library holds.
        assert content[: len(told)] == told
    if code is None and reader.fault != 1003:
        assert reader.fault == 0
        assert (content == told) or seed % 3 == 0

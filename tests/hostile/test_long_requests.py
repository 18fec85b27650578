"""A long request to the broker is written in pieces, so that no turn of the web process is long."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

import msgspec
import pytest

from broker.schema.control_schema import Request
from management.frame_writer import PIECE, FrameWriter, parts_of

LENGTH = struct.Struct(">I")


async def test_a_long_frame_goes_in_pieces_and_others_come_whole_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = [b"first", b"x" * (5 * PIECE + 1), b"second", b"", b"y" * (2 * PIECE), b"last"]
    read: list[bytes] = []
    over = asyncio.Event()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while len(read) < len(frames):
            (length,) = LENGTH.unpack(await reader.readexactly(4))
            read.append(await reader.readexactly(length))
        over.set()
        writer.close()

    written: list[int] = []
    write = asyncio.StreamWriter.write

    def noted(self: asyncio.StreamWriter, data: bytes) -> None:
        written.append(len(data))
        write(self, data)

    monkeypatch.setattr(asyncio.StreamWriter, "write", noted)
    path = str(tmp_path / "sock")
    server = await asyncio.start_unix_server(take, path)
    _, writer = await asyncio.open_unix_connection(path)
    sending = FrameWriter(writer)
    for frame in frames:
        sending.write(frame)
    assert sum(written) < PIECE, "all was written in the turn of the caller"
    await over.wait()
    assert read == frames
    assert max(written) <= PIECE + LENGTH.size
    sending.close()
    server.close()


def test_long_byte_strings_of_a_request_are_not_copied() -> None:
    long, longer = b"x" * (PIECE + 1), b"\xc4\x10" * PIECE
    args = {"one": long, "short": b"y" * PIECE, "two": longer, "name": "z"}
    request = Request(id=7, verb="definitions.import", as_user="guest", args=args)
    parts = parts_of(msgspec.msgpack.Encoder(), request)
    assert [part for part in parts if part is long or part is longer] == [long, longer]
    assert msgspec.msgpack.decode(b"".join(parts), type=Request) == request


def test_a_request_without_a_long_byte_string_is_one_part() -> None:
    encoder = msgspec.msgpack.Encoder()
    request = Request(id=7, verb="list", args={"noun": "queues", "text": "x" * 2 * PIECE})
    assert parts_of(encoder, request) == [encoder.encode(request)]


async def test_a_connection_that_ends_gives_up_what_waits(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)
        writer.transport.abort()
        ended.set()

    path = str(tmp_path / "sock")
    server = await asyncio.start_unix_server(leave, path)
    _, writer = await asyncio.open_unix_connection(path)
    sending = FrameWriter(writer)
    sending.write(b"x" * 64 * PIECE)
    sending.write(b"behind it")
    await ended.wait()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.wait([task for task in others if task.get_name() == "long frames"])
    sending.write(b"after it")
    sending.close()
    server.close()

"""Every row of the error table, sent as raw bytes; and the table in docs/compatibility.md."""

import re
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.amqp import raw
from tests.amqp.error_rows import (
    ROWS,
    Answer,
    Bytes,
    Call,
    ChannelClose,
    ConnectionClose,
    Dropped,
    NotSent,
    ProtocolHeader,
    Reply,
    Row,
    document,
)
from tests.amqp.methods import METHODS
from tests.amqp.raw import Client, ConnectionEndedError

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"


def filled(value: Any, name: str) -> Any:
    """`value` with `{n}` replaced wherever a string or bytes has it."""
    if isinstance(value, str):
        return value.replace("{n}", name)
    if isinstance(value, bytes):
        return value.replace(b"{n}", name.encode())
    if isinstance(value, dict):
        return {filled(key, name): filled(item, name) for key, item in value.items()}
    return value


def connect(row: Row, address: tuple[str, int]) -> Client:
    """A connection as far as the row's stage."""
    client = Client(address)
    if row.stage == "connected":
        return client
    if row.stage == "start":
        client.send(raw.PROTOCOL_HEADER)
        client.expect("connection.start", 0)
    elif row.stage == "tune":
        client.send(raw.PROTOCOL_HEADER)
        client.expect("connection.start", 0)
        client.send(raw.start_ok())
        client.expect("connection.tune", 0)
    else:
        client.start(**row.handshake)
        if row.stage != "tuned":
            client.send_method(0, "connection.open", virtual_host="/")
            client.expect("connection.open-ok", 0)
        if row.stage == "channel":
            client.call(1, "channel.open")
    return client


def play(row: Row, answer: Answer, address: tuple[str, int]) -> None:
    """Sends the row's steps and checks the answer."""
    name = f"row-{row.id}-{uuid.uuid4().hex[:8]}"
    with ExitStack() as stack:
        client = stack.enter_context(connect(row, address))
        for step in row.steps:
            if isinstance(step, Bytes):
                if step.data == b"publish {n}":
                    client.publish(1, "", name, b"x")
                    client.expect("basic.ack", 1)
                else:
                    client.send(filled(step.data, name))
            elif isinstance(step, Call):
                by = client
                if step.elsewhere:
                    by = stack.enter_context(Client.open(address))
                by.call(step.channel, step.name, **filled(step.fields, name))
            else:
                client.send_method(step.channel, step.name, **filled(step.fields, name))
        check(client, answer, name)


def ids_of(method: str) -> tuple[int, int]:
    """Class and method id of a method's name, of `class.method` in numbers, or of nothing."""
    if method in METHODS:
        return METHODS[method].class_id, METHODS[method].method_id
    class_id, _, method_id = method.partition(".")
    return int(class_id or 0), int(method_id or 0)


def check(client: Client, answer: Answer, name: str) -> None:
    """Reads the answer and compares."""
    match answer:
        case ChannelClose(code, method, text):
            ids = ids_of(method)
            client.expect_channel_close(1, code, *ids, text.replace("{n}", re.escape(name)))
            client.call(1, "channel.open")
        case ConnectionClose(code, method, text):
            ids = ids_of(method)
            client.expect_connection_close(code, *ids, text.replace("{n}", re.escape(name)))
        case Reply(method, fields):
            client.expect(method, **filled(fields, name))
        case ProtocolHeader():
            assert client.read_exactly(8) == raw.PROTOCOL_HEADER
            client.expect_end()
        case Dropped():
            with pytest.raises(ConnectionEndedError):
                client.read_frame()


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, amqp_address: tuple[str, int], flavour: str
) -> Iterator[dict[str, Future[None]]]:
    """All selected rows, played at once: many of them end with a delay that the broker makes."""
    wanted = {
        item.callspec.params["row"].id
        for item in request.session.items
        if item.path == Path(__file__) and "row" in getattr(item, "fixturenames", ())
    }
    with ThreadPoolExecutor(24) as pool:
        yield {
            row.id: pool.submit(play, row, answer_of(row, flavour), amqp_address)
            for row in ROWS
            if row.id in wanted
        }


def answer_of(row: Row, flavour: str) -> Answer:
    """The answer due from the broker under test."""
    return row.rabbitmq if flavour == "rabbitmq" and row.rabbitmq is not None else row.answer


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in ROWS])
def test_it_answers_as_the_table_says(
    row: Row, outcomes: dict[str, Future[None]], flavour: str
) -> None:
    answer = answer_of(row, flavour)
    if isinstance(answer, NotSent):
        pytest.skip(answer.known)
    outcomes[row.id].result()


def test_it_names_each_row_once() -> None:
    names = [row.id for row in ROWS]
    assert len(names) == len(set(names))


def test_it_shows_the_same_rows_in_the_compatibility_page() -> None:
    page = PAGE.read_text()
    start, end = (
        "<!-- error rows: python -m tests.amqp.error_rows -->\n",
        "<!-- end of error rows -->",
    )
    shown = page.split(start)[1].split(end)[0]
    assert shown.strip() == document().strip()

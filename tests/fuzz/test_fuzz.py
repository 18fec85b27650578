"""The short form of `make fuzz`: some mutated sessions through each door."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.amqp import raw
from tests.amqp.conftest import amqp_address as amqp_address
from tests.appliance import Appliance
from tests.conftest import _maker
from tests.fuzz import asking, files, inside, mutations, parsers, sessions
from tests.fuzz.found import minimise
from tests.fuzz.runs import Run, start

SESSIONS = 96
ASKED = 160
CALLED = 300


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    directory = tmp_path_factory.mktemp("fuzz")
    for make in _maker("serve", directory):
        appliance: Appliance = make(start=False)
        yield Run(appliance, start(appliance, directory))


@pytest.mark.parametrize("door", ["tcp", "tls", "proxy", "websocket", "web port"])
def test_no_bytes_make_it_hang_or_crash(run: Run, door: str) -> None:
    run.go(0, SESSIONS, door)
    assert run.sessions[door] == SESSIONS
    assert run.octets[door] > SESSIONS * 1000


@pytest.mark.parametrize("door", ["control", "definitions", "web", "metrics"])
def test_no_request_makes_it_fail(run: Run, door: str) -> None:
    way: asking.Control | asking.Pages
    if door in ("control", "definitions"):
        way = asking.Control(run.appliance, door)
    else:
        way = asking.Pages(run.appliance, door)
    count = asking.fuzz(way, 1, 0, ASKED, run.look)
    assert not count.findings
    assert count.mutants == ASKED
    assert count.octets > ASKED * 100


@pytest.mark.parametrize("door", parsers.PARSERS)
def test_what_no_parser_can_read_is_refused_by_it(door: str) -> None:
    """What took too long once is in the corpus; how long it takes is for `make fuzz` to say."""
    count = parsers.fuzz(door, 1, 0, CALLED)
    assert not [each for each in count.findings if "takes" not in each]
    assert count.mutants == CALLED


def test_no_piece_of_a_session_makes_a_broker_fail(tmp_path: Path) -> None:
    count = inside.fuzz(tmp_path / "data", 1, 0, CALLED)
    assert not [each for each in count.findings if "takes" not in each]
    assert count.mutants == CALLED


def test_no_damaged_file_makes_a_queue_give_what_is_not_its_own() -> None:
    count = files.fuzz(1, 0, 90)
    assert not count.findings
    assert count.mutants >= 60


def test_a_finding_is_made_short() -> None:
    data = bytes(5000) + b"needle" + bytes(3000)
    assert minimise(data, lambda tried: b"needle" in tried) == b"needle"


@pytest.mark.parametrize("number", range(len(sessions.KINDS)))
def test_what_is_mutated_is_valid_before(amqp_address: tuple[str, int], number: int) -> None:
    """Else every mutation would meet the same first fault."""
    with raw.Client(amqp_address) as client:
        client.send(b"".join(sessions.session(number)))
        answers = []
        while "connection.close-ok" not in answers:
            frame = client.read_frame()
            if frame.type == raw.METHOD:
                method = raw.decode_method(frame.payload, frame.channel)
                assert method.name not in ("channel.close", "connection.close"), method
                answers.append(method.name)
        assert {"queue.declare-ok", "basic.consume-ok", "tx.rollback-ok"} <= set(answers)


def test_a_session_is_made_from_its_number_and_the_seed() -> None:
    data = b"".join(sessions.session(3))
    made = [mutations.mutate(random.Random("1/2"), data) for _ in range(2)]
    assert made[0] == made[1]
    assert b"".join(mutations.split(random.Random(1), data)) == data

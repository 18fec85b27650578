"""The short form of `make fuzz`: some mutated sessions through each door."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.amqp import raw
from tests.amqp.conftest import amqp_address as amqp_address
from tests.appliance import Appliance
from tests.conftest import _maker
from tests.fuzz import mutations, sessions
from tests.fuzz.runs import Run, start

SESSIONS = 180


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

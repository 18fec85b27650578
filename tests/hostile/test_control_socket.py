"""What `make fuzz` found at the control socket: nonsense on it is a line in the log, no more."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import weakref
from itertools import pairwise
from types import SimpleNamespace

from broker.definitions.document import Fault
from broker.definitions.plan import Plan
from broker.server.importing import Importing
from tests.appliance import Appliance


def connected(broker: Appliance) -> socket.socket:
    peer = socket.socket(socket.AF_UNIX)
    peer.settimeout(30)
    peer.connect(str(broker.control_socket))
    return peer


def test_a_request_that_is_not_utf8_ends_its_connection_in_one_line(broker: Appliance) -> None:
    data = b"\x82\xa2id\x01\xa4verb\xa1\xff"
    with connected(broker) as peer:
        peer.sendall(struct.pack(">I", len(data)) + data)
        assert peer.recv(1) == b""
    assert "control socket: cannot read a request" in broker.log()
    assert "Traceback" not in broker.log()


async def test_an_import_that_fails_when_nobody_waits_for_it_is_no_traceback() -> None:
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context))

    class Failing(Importing):
        async def _run(self, *_: object) -> Plan:
            await asyncio.sleep(0.01)
            raise Fault("definitions: queues[0]: 'name' is missing")

    asking = asyncio.create_task(Failing(None).run({"queues": [{}]}))
    await asyncio.sleep(0)
    asking.cancel()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.wait(others)
    del asking, others
    gc.collect()
    assert not told


def test_nothing_of_an_import_is_garbage_in_a_circle() -> None:
    """A busy broker keeps such garbage for hours: `make fuzz` found 164 MiB of it."""
    gc.disable()
    try:
        plan = Plan(SimpleNamespace(vhosts={}, access=SimpleNamespace(users={})))
        kept = weakref.ref(plan)
        for _ in plan.let_go():
            pass
        del plan
        assert kept() is None
    finally:
        gc.enable()


def test_what_an_import_kept_of_each_object_is_given_up_in_steps() -> None:
    """To free it at once after 100,000 queues is a turn of 20 ms."""
    plan = Plan(SimpleNamespace(vhosts={}, access=SimpleNamespace(users={})))
    queues, many = plan.topology._queues, 20_000
    queues.update(("/", f"q{number}") for number in range(many))
    left = [many]
    for _ in plan.let_go():
        left.append(len(queues))
    assert left[-1] == 0
    assert max(before - after for before, after in pairwise(left)) < many / 10

"""What `make fuzz` found at the control socket: nonsense on it is a line in the log, no more."""

from __future__ import annotations

import asyncio
import json
import socket
import struct

import msgspec

from broker.control_schema import Request
from management.broker_client import BrokerClient
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


def test_an_import_that_fails_when_nobody_waits_for_it_is_no_traceback(broker: Appliance) -> None:
    queues = [{"name": f"q{n}", "vhost": "/", "arguments": {}} for n in range(20_000)]
    document = json.dumps({"queues": [*queues, {"vhost": "/"}]}).encode()
    args = {"definitions": document}
    data = msgspec.msgpack.encode(Request(id=1, verb="definitions.import", args=args))
    with connected(broker) as peer:
        peer.sendall(struct.pack(">I", len(data)) + data)

    async def next_import() -> None:
        client = BrokerClient(broker.control_socket)
        await client.call("definitions.import", definitions=b"{}")
        await client.close()

    # Imports wait for one another: the first one is over now.
    asyncio.run(next_import())
    assert "Traceback" not in broker.log()

"""The load generator against a small broker that does what it is told, faults included."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.bench import generator
from tests.bench.client import method, short

Message = tuple[bytes, bytes]
"""(header payload, body) of one message."""
Fault = Callable[[list[Message]], list[Message]]


class ToyBroker:
    """One queue, one publisher, one consumer; all of it held until the publisher has sent `count`.

    `fault` may change the list of messages before they are delivered.
    """

    def __init__(self, count: int, fault: Fault) -> None:
        self.count, self.fault = count, fault
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.consumer: socket.socket | None = None
        self.messages: list[Message] = []
        self.threads: list[threading.Thread] = []
        self.accepting = threading.Thread(target=self._accept, daemon=True)
        self.accepting.start()

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.accepting.join(5)
        for thread in self.threads:
            thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            thread.start()
            self.threads.append(thread)

    def _serve(self, connection: socket.socket) -> None:
        stream = connection.makefile("rb")
        stream.read(8)
        empty = struct.pack(">I", 0)
        mechanisms = struct.pack(">I", 5) + b"PLAIN" + struct.pack(">I", 5) + b"en_US"
        connection.sendall(method(0, 10, 10, b"\0\x09" + empty + mechanisms))
        header = b""
        with connection, stream:
            while len(head := stream.read(7)) == 7:
                kind, _, size = struct.unpack(">BHI", head)
                payload = stream.read(size + 1)[:-1]
                if kind == 2:
                    header = payload
                elif kind == 3:
                    self._published((header, payload))
                elif kind == 1:
                    self._answer(connection, *struct.unpack_from(">HH", payload))

    def _answer(self, connection: socket.socket, class_id: int, method_id: int) -> None:
        replies = {
            (10, 11): method(0, 10, 30, struct.pack(">HIH", 0, 131072, 0)),
            (10, 40): method(0, 10, 41, b"\0"),
            (10, 50): method(0, 10, 51),
            (20, 10): method(1, 20, 11, b"\0\0\0\0"),
            (50, 10): method(1, 50, 11, short("q") + bytes(8)),
            (50, 40): method(1, 50, 41, bytes(4)),
            (60, 20): method(1, 60, 21, short("c")),
        }
        if (class_id, method_id) == (60, 20):
            self.consumer = connection
        if reply := replies.get((class_id, method_id)):
            connection.sendall(reply)

    def _published(self, message: Message) -> None:
        self.messages.append(message)
        if len(self.messages) == self.count:
            frames = b"".join(self._delivery(*each) for each in self.fault(self.messages))
            assert self.consumer is not None
            self.consumer.sendall(frames)

    def _delivery(self, header: bytes, body: bytes) -> bytes:
        deliver = method(1, 60, 60, short("c") + struct.pack(">QB", 1, 0) + short("") + short("q"))
        frames = [deliver]
        for kind, payload in ((2, header), (3, body)):
            frames.append(struct.pack(">BHI", kind, 1, len(payload)) + payload + b"\xce")
        return b"".join(frames)


@pytest.fixture
def toy() -> Iterator[Callable[[Fault], ToyBroker]]:
    made: list[ToyBroker] = []

    def make(fault: Fault) -> ToyBroker:
        made.append(ToyBroker(50, fault))
        return made[-1]

    yield make
    for broker in made:
        broker.close()


def run(broker: ToyBroker, patience: float = 1.0) -> dict[str, int]:
    options = ["--count", "50", "--patience", str(patience)]
    return generator.run(broker.port, options)


def test_it_is_content_when_everything_arrives_once(toy: Callable[[Fault], ToyBroker]) -> None:
    result = run(toy(lambda messages: messages), patience=30)
    assert result["right"]
    assert (result["published"], result["delivered"], result["lost"]) == (50, 50, 0)


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        (lambda messages: messages[:20] + messages[21:], '"lost":1'),
        (lambda messages: messages[:-1], '"lost":1'),
        (lambda messages: [*messages, messages[7]], '"duplicates":1'),
        (lambda messages: messages[:7] + messages[6:-1], '"duplicates":1'),
        (lambda messages: [messages[1], messages[0], *messages[2:]], '"disordered":1'),
        (lambda m: [(m[0][0], b"\xff" * 16), *m[1:]], '"corrupt":1'),
        (
            lambda m: [(m[0][0][:11] + b"\x11" + m[0][0][12:], m[0][1] + b"!"), *m[1:]],
            '"corrupt":1',
        ),
    ],
    ids=["lost", "last-lost", "doubled", "doubled-for-lost", "swapped", "altered", "longer"],
)
def test_it_complains_of_a_planted_fault(
    toy: Callable[[Fault], ToyBroker], fault: Fault, complaint: str
) -> None:
    with pytest.raises(generator.GeneratorFailed) as failure:
        run(toy(fault))
    assert complaint in str(failure.value)

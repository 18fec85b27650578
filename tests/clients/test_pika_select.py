"""A pipelining publisher and consumer on pika's callback-driven adapter."""

from typing import Any

import pika

from tests.clients.conftest import parameters


class PipeliningSession:
    """Publishes `count` persistent messages at once with confirms, consumes and acks them all."""

    def __init__(self, address: tuple[str, int], queue: str, count: int) -> None:
        self.queue, self.count = queue, count
        self.confirmed: set[int] = set()
        self.bodies: list[int] = []
        self.problem: object = None
        self.connection = pika.SelectConnection(
            parameters(address),
            on_open_callback=lambda connection: connection.channel(on_open_callback=self.opened),
            on_open_error_callback=self.failed,
            on_close_callback=self.closed,
        )

    def run(self) -> None:
        """Runs until both are complete or something failed."""
        self.connection.ioloop.call_later(60, lambda: self.failed(None, "timeout"))
        self.connection.ioloop.start()

    def opened(self, channel: Any) -> None:
        self.channel = channel
        channel.add_on_close_callback(lambda _channel, reason: self.noted(reason))
        channel.queue_declare(self.queue, durable=True, callback=self.declared)

    def declared(self, _frame: Any) -> None:
        self.channel.confirm_delivery(self.told)
        self.channel.basic_qos(prefetch_count=100)
        self.channel.basic_consume(self.queue, self.delivered)
        for number in range(self.count):
            self.channel.basic_publish(
                "", self.queue, str(number), pika.BasicProperties(delivery_mode=2)
            )

    def told(self, frame: Any) -> None:
        tag = frame.method.delivery_tag
        low = 1 if frame.method.multiple else tag
        self.confirmed.update(range(low, tag + 1))
        self.finish()

    def delivered(self, channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        self.bodies.append(int(body))
        channel.basic_ack(method.delivery_tag)
        self.finish()

    def finish(self) -> None:
        if len(self.confirmed) == self.count == len(self.bodies):
            self.channel.queue_delete(self.queue, callback=lambda _frame: self.connection.close())

    def failed(self, _connection: Any, error: object) -> None:
        self.problem = error
        self.connection.ioloop.stop()

    def noted(self, reason: Any) -> None:
        if getattr(reason, "reply_code", 0) not in (0, 200):
            self.problem = reason

    def closed(self, _connection: Any, reason: Any) -> None:
        self.noted(reason)
        self.connection.ioloop.stop()


def test_it_confirms_and_delivers_a_pipelined_stream(
    amqp_address: tuple[str, int], name: str
) -> None:
    session = PipeliningSession(amqp_address, name, 3000)
    session.run()
    assert session.problem is None
    assert session.bodies == list(range(3000))
    assert session.confirmed == set(range(1, 3001))

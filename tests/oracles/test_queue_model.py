"""A queue of the broker against a list: any order of publishing, getting, settling and purging."""

import os
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.amqp import raw
from tests.amqp.raw import Client, Message
from tests.oracles.queue_model import Entry, QueueModel

# A night run raises this.
EXAMPLES = int(os.environ.get("QUEUE_MODEL_EXAMPLES", "60"))
SETTINGS = settings(
    max_examples=EXAMPLES,
    stateful_step_count=40,
    suppress_health_check=list(HealthCheck),
)
priorities = st.none() | st.integers(0, 4) | st.just(255)
bodies = st.binary(max_size=20) | st.integers(0, 255).map(lambda byte: bytes([byte]) * 140_000)


class QueueMachine(RuleBasedStateMachine):
    """One queue, one channel; each rule does the same to the broker and to the model."""

    address: tuple[str, int]
    durable = True
    max_priority = 0

    def __init__(self) -> None:
        super().__init__()
        self.model = QueueModel()
        self.queue = f"model-{uuid.uuid4().hex}"
        self.connect()
        arguments = {"x-max-priority": self.max_priority} if self.max_priority else {}
        self.client.call(
            1, "queue.declare", queue=self.queue, durable=self.durable, arguments=arguments
        )

    def connect(self) -> None:
        """A connection whose channel confirms."""
        self.client = Client.open(self.address)
        self.client.call(1, "confirm.select")
        self.confirms = 0

    def teardown(self) -> None:
        self.client.call(1, "queue.delete", queue=self.queue)
        self.client.close()

    @rule(
        parts=st.lists(st.tuples(bodies, priorities), min_size=1, max_size=5),
        persistent=st.booleans(),
    )
    def publish(self, parts: list[tuple[bytes, int | None]], persistent: bool) -> None:
        data = b""
        for body, priority in parts:
            self.model.publish(body, min(priority or 0, self.max_priority))
            values = {} if priority is None else {"priority": priority}
            data += raw.publish(1, "", self.queue, body, delivery_mode=1 + persistent, **values)
        self.client.send(data)
        self.client.expect_confirms(1, self.confirms + len(parts), first=self.confirms + 1)
        self.confirms += len(parts)

    @rule(no_ack=st.booleans(), count=st.integers(1, 6))
    def get(self, no_ack: bool, count: int) -> None:
        for _ in range(count):
            expected = self.model.get(no_ack)
            got = self.client.get(1, self.queue, no_ack=no_ack)
            if expected is None:
                assert got is None
                continue
            tag, entry, left = expected
            assert got is not None
            assert (got.tag, got.body) == (tag, entry.body)
            assert got.method.message_count == left
            self.check_redelivered(got, entry)

    def check_redelivered(self, got: Message, entry: Entry) -> None:
        """The flag tells whether it was delivered before."""
        assert got.redelivered == entry.redelivered

    @precondition(lambda self: self.model.unacked)
    @rule(
        data=st.data(),
        method=st.sampled_from(["basic.ack", "basic.nack", "basic.reject"]),
        multiple=st.booleans(),
        requeue=st.booleans(),
    )
    def settle(self, data: st.DataObject, method: str, multiple: bool, requeue: bool) -> None:
        tag = data.draw(st.sampled_from(sorted(self.model.unacked)))
        multiple = multiple and method != "basic.reject"
        if multiple and data.draw(st.booleans()):
            tag = 0
        fields: dict[str, Any] = {"delivery_tag": tag}
        if method != "basic.reject":
            fields["multiple"] = multiple
        if method == "basic.ack":
            requeue = False
        else:
            fields["requeue"] = requeue
        self.client.send_method(1, method, **fields)
        self.model.settle(self.model.chosen(tag, multiple), requeue)

    @rule()
    def recover(self) -> None:
        self.client.call(1, "basic.recover", requeue=True)
        self.model.settle(sorted(self.model.unacked), requeue=True)

    @rule()
    def purge(self) -> None:
        got = self.client.call(1, "queue.purge", queue=self.queue)
        assert got.message_count == self.model.purge()

    @rule()
    def reopen_channel(self) -> None:
        self.client.call(1, "channel.close")
        self.client.call(1, "channel.open")
        self.client.call(1, "confirm.select")
        self.confirms = 0
        self.model.close_channel()

    @rule()
    def reconnect(self) -> None:
        self.client.close()
        self.connect()
        self.model.close_channel()

    @precondition(lambda self: self.model.ready)
    @rule(prefetch=st.integers(0, 4))
    def consume(self, prefetch: int) -> None:
        """Takes what a consumer is given at once, then cancels it; the messages stay unacked."""
        self.client.call(1, "basic.qos", prefetch_count=prefetch)
        self.client.call(1, "basic.consume", queue=self.queue, consumer_tag="c")
        count = len(self.model.ready) if prefetch == 0 else min(prefetch, len(self.model.ready))
        for _ in range(count):
            got = self.client.expect_message(channel=1)
            expected = self.model.get(no_ack=False)
            assert expected is not None
            tag, entry, _ = expected
            assert (got.tag, got.body) == (tag, entry.body)
            self.check_redelivered(got, entry)
        self.client.call(1, "basic.cancel", consumer_tag="c")

    @invariant()
    def counts_are_the_same(self) -> None:
        got = self.client.call(1, "queue.declare", queue=self.queue, passive=True)
        assert got.message_count == len(self.model.ready)


class TransientQueueMachine(QueueMachine):
    """The same with a queue that is not durable."""

    durable = False


class PriorityQueueMachine(QueueMachine):
    """The same with levels."""

    max_priority = 3


class RestartedQueueMachine(QueueMachine):
    """The same with a broker that is killed or stopped in between: whatever was confirmed, settled
    and answered for stays so. What was never delivered may come back flagged as redelivered."""

    restart: Callable[[bool], tuple[str, int]]

    @rule(parts=st.lists(st.tuples(bodies, priorities), min_size=1, max_size=5))
    def publish(self, parts: list[tuple[bytes, int | None]]) -> None:  # type: ignore[override]
        super().publish(parts, True)

    def check_redelivered(self, got: Message, entry: Entry) -> None:
        assert got.redelivered or not entry.redelivered

    @precondition(lambda self: self.model.published)
    @rule(kill=st.booleans())
    def end_and_start(self, kill: bool) -> None:
        # A synchronous method's answer says that the acks before it are written.
        self.client.call(1, "basic.qos")
        self.address = type(self).restart(kill)
        self.client.cut()
        self.connect()
        self.model.close_channel()


def test_a_durable_queue_is_a_list(amqp_address: tuple[str, int]) -> None:
    QueueMachine.address = amqp_address
    run_state_machine_as_test(QueueMachine, settings=SETTINGS)


def test_a_transient_queue_is_a_list(amqp_address: tuple[str, int]) -> None:
    TransientQueueMachine.address = amqp_address
    run_state_machine_as_test(TransientQueueMachine, settings=SETTINGS)


def test_a_priority_queue_is_a_list_in_levels(amqp_address: tuple[str, int]) -> None:
    PriorityQueueMachine.address = amqp_address
    run_state_machine_as_test(PriorityQueueMachine, settings=SETTINGS)


@pytest.mark.parametrize("levels", [0, 255])
def test_a_queue_is_a_list_over_restarts(broker: Any, levels: int) -> None:
    def restart(kill: bool) -> tuple[str, int]:
        broker.end(kill=kill)
        broker.start()
        return broker.host, broker.amqp_port

    RestartedQueueMachine.restart = staticmethod(restart)

    class Machine(RestartedQueueMachine):
        max_priority = levels

        @property
        def address(self) -> tuple[str, int]:  # type: ignore[override]
            return broker.host, broker.amqp_port

        @address.setter
        def address(self, _value: tuple[str, int]) -> None:
            """It is always the broker's own."""

    run_state_machine_as_test(
        Machine, settings=settings(SETTINGS, max_examples=EXAMPLES // 20, stateful_step_count=20)
    )

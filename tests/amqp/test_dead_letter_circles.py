"""Dead letters whose way leads back, or through very many queues."""

import itertools

import pytest

from tests.amqp.raw import Client


@pytest.mark.parametrize("overflow", ["drop-head", "reject-publish"])
@pytest.mark.parametrize("circle", [1, 2, 3])
def test_a_rejected_message_comes_back_to_its_full_queue(
    client: Client, other: Client, name: str, overflow: str, circle: int
) -> None:
    queues = [f"{name}.{number}" for number in range(circle)]
    for queue, following in zip(queues, [*queues[1:], queues[0]], strict=True):
        client.call(
            1,
            "queue.declare",
            queue=queue,
            arguments={
                "x-max-length": 1,
                "x-overflow": overflow,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": following,
            },
        )
    other.call(1, "basic.qos", prefetch_count=1)
    for queue in queues:
        other.call(1, "basic.consume", queue=queue)
    for queue in queues:
        client.publish(1, "", queue, b"first of " + queue.encode())
    taken = other.expect_messages(circle, 1)
    for queue in queues:
        client.publish(1, "", queue, b"second of " + queue.encode())
    client.fence(1)
    for message in taken:
        other.send_method(1, "basic.reject", delivery_tag=message.tag, requeue=False)
    # Everybody goes on: what is delivered next was ready, or is one that came around.
    again = other.expect_messages(circle, 1)
    assert {message.body.split(b" of ")[0] for message in again} <= {b"first", b"second"}
    other.close()
    for queue in queues:
        client.call(1, "queue.delete", queue=queue)


@pytest.mark.parametrize(
    "arguments",
    [{"x-message-ttl": 0}, {"x-max-length": 0, "x-overflow": "reject-publish-dlx"}],
    ids=["expired", "refused"],
)
def test_a_message_passes_on_through_many_queues(
    client: Client, other: Client, name: str, arguments: dict[str, int | str]
) -> None:
    count = 400
    queues = [f"{name}.{number}" for number in range(count)]
    for queue, following in itertools.pairwise([*queues, f"{name}.end"]):
        letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": following}
        client.call(1, "queue.declare", queue=queue, arguments={**arguments, **letters})
    client.call(1, "queue.declare", queue=f"{name}.end")
    other.call(1, "basic.consume", queue=f"{name}.end", no_ack=True)
    client.publish(1, "", queues[0], b"on its way")
    if "x-message-ttl" in arguments:
        (message,) = other.expect_messages(1, 1)
        assert message.body == b"on its way"
        assert len(message.properties["headers"]["x-death"]) == count
    client.fence(1)
    for queue in [*queues, f"{name}.end"]:
        client.call(1, "queue.delete", queue=queue)

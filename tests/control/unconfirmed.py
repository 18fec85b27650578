"""A publisher that waits for its confirms though its queue and the consumer are not stuck."""

from __future__ import annotations

from dataclasses import dataclass

from broker.server.app import Broker
from broker.vhosts.vhost import VHost
from tests.inside import Clock, Peer, connect, publish, sample, until


@dataclass
class Unconfirmed:
    """`publisher` waits for the confirms of messages that `consumer` holds: they come when those
    are acknowledged (`x-confirm-on`). The consumer acknowledges what comes behind: neither it nor
    the queue is stuck."""

    vhost: VHost
    queue: str
    publisher: Peer
    consumer: Peer
    delivered: int

    async def go_on(self) -> None:
        """One message more comes and is acknowledged."""
        held = self.consumer.channel.messages_unacknowledged
        publish(self.vhost, self.queue)
        await until(lambda: self.consumer.channel.messages_unacknowledged == held + 1)
        self.delivered += 1
        await self.consumer.ack(self.delivered)


async def unconfirmed(broker: Broker, user: str, queue: str, count: int) -> Unconfirmed:
    """Both clients are this user's; the queue is made for them."""
    vhost = broker.vhosts["/"]
    vhost.declare_queue(queue, arguments={"x-confirm-on": "ack"})
    publisher, consumer = await connect(broker, user), await connect(broker, user)
    await consumer.consume(queue, "holds")
    publisher.call(1, "confirm.select")
    await publisher.publish(queue, count)
    return Unconfirmed(vhost, queue, publisher, consumer, count)


async def wait(broker: Broker, clock: Clock, publishers: list[Unconfirmed], seconds: int) -> None:
    """They wait for so many seconds, with a sample in each."""
    for _ in range(seconds):
        for publisher in publishers:
            await publisher.go_on()
        sample(broker, clock)

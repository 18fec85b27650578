"""What the usage feed says of real queues that hold nothing."""

from __future__ import annotations

from broker.features.usage.accounts import Accounts
from tests import inside

MINUTE_MS = 60_000


async def test_a_queue_without_messages_has_no_bytes_whatever_was_read_before_it() -> None:
    with inside.in_memory() as directory:
        async with inside.running(directory) as broker:
            vhost = broker.vhosts["/"]
            for name in ("holds", "has a consumer", "never used"):
                vhost.declare_queue(name)
            inside.publish(vhost, "holds", 5, bytes(1000))
            client = await inside.connect(broker, "guest")
            await client.consume("has a consumer", "c", prefetch=1)
            accounts = Accounts()
            lines = [
                accounts.queue(queue, 0, MINUTE_MS, True, False) for queue in vhost.queues.values()
            ]
            told = {line["name"]: line.get("message_bytes") for line in lines if line is not None}
            assert told == {"holds": 5000, "has a consumer": None}

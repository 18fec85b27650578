"""A virtual host of a test's own on the shared broker."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator

from management.broker_client import BrokerClient


@contextlib.asynccontextmanager
async def own_vhost(client: BrokerClient, prefix: str) -> AsyncIterator[str]:
    """Its name, which is unused; guest may do everything in it."""
    name = f"{prefix}-{uuid.uuid4().hex[:8]}"
    await client.call("vhost.put", name=name)
    await client.call(
        "permission.put", vhost=name, user="guest", configure=".*", write=".*", read=".*"
    )
    yield name
    await client.call("vhost.delete", name=name)

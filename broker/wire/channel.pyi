from typing import Any

from broker.kernel.contracts import Topology
from broker.kernel.large_body import LargeBody
from broker.kernel.recording import Recorder
from broker.store.bodies.store import BodyStore
from broker.store.commit.persister import Persister
from broker.wire.collecting import CollectingChannel
from broker.wire.session import Session

class WireChannel(CollectingChannel):
    replaced: bytes | None
    last_queue: str | None
    reply_name: str | None
    gauge: Any
    recorder: Recorder
    def __init__(
        self,
        connection: Session,
        number: int,
        persister: Persister,
        topology: Topology,
        *,
        max_message_size: int = ...,
        max_unacked: int = 1000000,
        bodies: BodyStore | None = None,
        body_in_memory: int = ...,
    ) -> None: ...
    @property
    def messages_uncommitted(self) -> int: ...
    @property
    def message_bytes_uncommitted(self) -> int: ...
    @property
    def acks_uncommitted(self) -> int: ...
    @property
    def published(self) -> int: ...
    @property
    def returned(self) -> int: ...
    @property
    def dropped(self) -> int: ...
    @property
    def opened_at(self) -> int: ...
    def published_to(self) -> dict[tuple[Any, tuple[Any, ...]], int]: ...
    def counters(self) -> dict[str, int]: ...
    def check_target(self, exchange: bytes, routing_key: bytes, properties: bytes) -> None: ...
    def publish_committed(
        self,
        exchange: bytes,
        routing_key: bytes,
        properties: bytes,
        body: bytes | LargeBody,
        flags: int,
        mandatory: bool,
    ) -> bool: ...
    def forget_content(self) -> None: ...

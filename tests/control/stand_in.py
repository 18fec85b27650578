"""A small broker in memory with the objects that the control socket reads and changes.

It stands in where a test is about the control socket itself: who may call, how rows are paged and
pushed. Messages are lists, nothing is routed but by the default exchange.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from broker.access import Access
from broker.access.passwords import SHA256, rabbit_hash
from broker.fields.properties import encode
from broker.queues.limits import Limits
from broker.schema.errors import NotFound, PreconditionFailed, describe
from broker.server.alarms import Alarms, Reading
from broker.server.control import ControlServer
from broker.server.importing import Importing
from broker.server.logins import Logins
from broker.server.policy_sweep import PolicySweep
from broker.server.sampling import Sampling
from broker.server.stall import Stall
from broker.settings.config import Config, settings
from broker.settings.files import SettingsFiles
from broker.stats import NodeReading, Stats
from broker.store.commit.failed_reads import FailedReads
from broker.store.commit.sync_method import SyncMethod
from broker.store.files.waits import Waits
from broker.vhosts.policies import Policies
from broker.vhosts.slices import Slices
from broker.vhosts.tracing import Tracer
from broker.vhosts.vhost import Published
from management.broker_client import BrokerClient
from tests.control.disks import MemoryDisk
from tests.control.stand_in_transfers import Tiers, Transfers


class Binding(NamedTuple):
    source: str
    destination: str
    destination_type: str
    routing_key: str
    arguments: dict[str, Any]


class Exchange:
    def __init__(self, name: str, type: str = "direct", **flags: Any) -> None:
        self.name = name
        self.type = type
        self.durable = flags.get("durable", True)
        self.auto_delete = flags.get("auto_delete", False)
        self.internal = flags.get("internal", False)
        self.arguments = flags.get("arguments") or {}
        self.policy = None
        self.publish_in = self.publish_out = 0
        self.holding = self.duplicates = None
        self.gauge = None

    @property
    def changes(self) -> object:
        """Never the same: lists of bindings are made anew."""
        return object()


class Holding:
    """One delayed message, which waits whatever is done to it."""

    ENTRY = SimpleNamespace(place=(1, 1, 1), due=1, length=40, body_length=1)

    def browse(self, **_: Any) -> Holding:
        return self

    def next_entries(self, count: int) -> list[Any]:
        return [self.ENTRY]

    def waiting(self, entries: list[Any]) -> list[Any]:
        return entries

    read = waiting

    def cancel(self, *place: int) -> None:
        pass

    def counters(self) -> dict[str, int]:
        return {}

    facts = counters


class Queue:
    def __init__(self, vhost: str, name: str, **flags: Any) -> None:
        self.name = name
        self.vhost_name = vhost
        self.arguments = flags.get("arguments") or {}
        self.type = self.arguments.get("x-queue-type", "classic")
        self.paused = False
        self.refusals: Any = None
        self.gauge = None
        self.durable = flags.get("durable", False)
        self.exclusive = flags.get("exclusive", False)
        self.auto_delete = flags.get("auto_delete", False)
        self.owner, self.declared_by = flags.get("owner"), flags.get("user")
        self.policy: Any = None
        self.limits = Limits(self.arguments) if self.arguments else None
        self.segments = self.disk_bytes = self.message_bytes_persistent = 0
        self.messages_persistent = self.messages_ram = self.memory = self.consumer_capacity = 0
        self.messages_ready_ram = self.messages_unacknowledged_ram = self.messages_paged_out = 0
        self.message_bytes_ram = self.message_bytes_paged_out = self.disk_bytes_live = 0
        self.head_message_timestamp = None
        self.used_at = 1
        self.deleted = False
        self.single_active_consumer = None
        self.exclusive_consumer_tag = self.single_active_consumer_tag = None
        self.consumers: list[Any] = []
        self.ready: list[tuple[int, str, str, bytes, bytes, bool]] = []
        self.out: dict[int, tuple[int, str, str, bytes, bytes, bool]] = {}
        self.counts = dict.fromkeys(
            ("publish", "deliver", "deliver_no_ack", "get", "get_no_ack", "get_empty", "ack",
             "redeliver", "reject", "confirm"), 0
        )  # fmt: skip
        self.expired = self.dropped = self.dead_lettered = self.refused = 0
        self.oldest_unconfirmed = None
        self._position = 0

    def start_of(self, value: Any, now_ms: int) -> Any:
        return value

    def browse(self, start: Any, count: int, bytes_max: int, done: Any) -> None:
        done([])

    def stream_figures(self) -> dict[str, Any]:
        return {}

    state = property(lambda self: "paused" if self.paused else "running")
    consumer_count = property(lambda self: len(self.consumers))
    messages_ready = property(lambda self: len(self.ready))
    messages_unacknowledged = property(lambda self: len(self.out))
    policy_name = property(lambda self: self.policy and self.policy.name)
    operator_policy_name = property(lambda self: self.policy and self.policy.operator_name)
    policy_definition = property(lambda self: self.policy and self.policy.definition)
    messages = property(lambda self: len(self.ready) + len(self.out))
    message_bytes = property(
        lambda self: self.message_bytes_ready + self.message_bytes_unacknowledged
    )

    @property
    def message_bytes_ready(self) -> int:
        return sum(len(message[4]) for message in self.ready)

    @property
    def message_bytes_unacknowledged(self) -> int:
        return sum(len(message[4]) for message in self.out.values())

    def counters(self) -> dict[str, int]:
        return dict(self.counts)

    def add(self, routing_key: str, properties: bytes, body: bytes) -> None:
        self._position += 1
        self.ready.append((self._position, "", routing_key, properties, body, False))
        self.counts["publish"] += 1

    def get(self, getter: Any, *, forced: bool = False) -> None:
        if not self.ready:
            self.counts["get_empty"] += 1
            getter.empty(self)
            return
        message = self.ready.pop(0)
        self.out[message[0]] = message
        self.counts["get"] += 1
        place = (message[0], 0, 0, int(message[5]))
        exchange, routing_key = message[1].encode(), message[2].encode()
        getter.message(self, exchange, routing_key, message[3], message[4], place)

    def peek(self, count: int, bytes_max: int, shown_bytes: int = -1) -> Any:
        rows = [
            (one[1].encode(), one[2].encode(), one[3], one[4], len(one[4]), one[5])
            for one in self.ready[:count]
        ]
        return SimpleNamespace(go_on=lambda: 0, rows=rows)

    def requeue_place(self, place: tuple[int, int, int, int]) -> None:
        message = self.out.pop(place[0])
        self.ready.append((*message[:5], True))
        self.ready.sort()

    def settle_place(self, place: tuple[int, int, int, int], acked: bool = True) -> None:
        del self.out[place[0]]
        self.counts["ack" if acked else "reject"] += 1

    def wake(self) -> None:
        pass

    hold_back = deliver_pending = purge_part = staticmethod(lambda *_: 0)

    def remove_consumer(self, consumer: Any) -> None:
        self.consumers.remove(consumer)

    def purge(self) -> int:
        count = len(self.ready)
        self.ready.clear()
        return count


class VHost:
    has_leaving = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.description = ""
        self.tags: list[str] = []
        self.default_queue_type = "classic"
        self.is_damaged = False
        self.protected_from_deletion = self.tracing = False
        self.tracer = Tracer(name, lambda *_: None, lambda *_: None)
        self.exchanges = {"": Exchange(""), "amq.topic": Exchange("amq.topic", "topic")}
        self.queues: dict[str, Queue] = {}
        self.bound: list[Binding] = []
        self.bodies = SimpleNamespace(unused=True)
        self.slices = Slices(lambda _seconds, _callback: None)

    def has_queue(self, name: str) -> bool:
        return name in self.queues

    def declare_queue(self, name: str, **flags: Any) -> tuple[Queue, bool]:
        old = self.queues.get(name)
        if old is not None:
            if old.durable != flags.get("durable", False):
                raise PreconditionFailed("inequivalent arg 'durable'")
            return old, False
        self.queues[name] = Queue(self.name, name, **flags)
        return self.queues[name], True

    def delete_queue(self, name: str, **flags: Any) -> int:
        queue = self.queues.pop(name)
        self.bound = [one for one in self.bound if one.destination != name]
        return len(queue.ready)

    def set_paused(self, queue: Queue, paused: bool) -> bool:
        changed = queue.paused != paused
        queue.paused = paused
        return changed

    def declare_exchange(self, name: str, type: str = "direct", **flags: Any) -> bool:
        if name in self.exchanges:
            return False
        self.exchanges[name] = Exchange(name, type, **flags)
        return True

    def delete_exchange(self, name: str, **flags: Any) -> bool:
        return self.exchanges.pop(name, None) is not None

    def bind(self, *binding: Any) -> bool:
        new = Binding(*binding)
        if new.source not in self.exchanges:
            raise NotFound(f"no {describe('exchange', new.source, self.name)}")
        if new in self.bound:
            return False
        self.bound.append(new)
        return True

    def unbind(self, *binding: Any) -> bool:
        if Binding(*binding) not in self.bound:
            return False
        self.bound.remove(Binding(*binding))
        return True

    def bindings(
        self, source: Any = None, destination: Any = None, destination_type: Any = None
    ) -> Iterator[Binding]:
        implicit = [Binding("", name, "queue", name, {}) for name in self.queues]
        for one in [*implicit, *self.bound]:
            wanted = (source, destination, destination_type)
            if all(want in (None, have) for want, have in zip(wanted, one[:3], strict=True)):
                yield one

    def apply_policies(self) -> Iterator[None]:
        return iter(())

    def delete(self) -> Iterator[None]:
        self.queues.clear()
        yield

    def exchange(self, name: str) -> Exchange:
        if name not in self.exchanges:
            raise NotFound(f"no {describe('exchange', name, self.name)}")
        return self.exchanges[name]

    def publish(
        self,
        exchange: Exchange,
        keys: list[str],
        found: dict[str, Any],
        body: bytes,
        queues: Sequence[Any] | None = None,
    ) -> Published:
        queue = self.queues.get(keys[0]) if not exchange.name else None
        if queue is not None:
            queue.add(keys[0], encode(found), body)
        return Published(*[int(queue is not None)] * 2)


class Channel:
    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        self.number = number
        self.confirm = self.transactional = False
        self.prefetch_count = self.global_prefetch_count = 0
        self.messages_unacknowledged = self.messages_unconfirmed = self.oldest_unconfirmed = 0
        self.messages_uncommitted = self.acks_uncommitted = self.message_bytes_uncommitted = 0
        self.consumers: dict[str, Any] = {}
        self.gauge = None
        self.published = self.delivered = self.acked = self.opened_at = 0
        self.closing, self.refused = False, 0
        self.flows: dict[tuple[Any, tuple[Any, ...]], int] = {}

    def published_to(self) -> dict[tuple[Any, tuple[Any, ...]], int]:
        return self.flows

    def counters(self) -> dict[str, int]:
        return {"publish": self.published, "deliver": self.delivered, "ack": self.acked}

    ack_timeouts = None

    def holders(self) -> list[Any]:
        return list(self.consumers.values())

    def unacked_of(self, *_: Any) -> tuple[list[Any], int]:
        return [], 0

    def set_prefetch(self, count: int) -> None:
        self.prefetch_count = count

    def consume(self, queue: Queue, tag: str, prefetch_count: int = 0) -> SimpleNamespace:
        consumer = SimpleNamespace(
            tag=tag, queue=queue, channel=self, prefetch_count=prefetch_count, unacked=0,
            ack_required=True, exclusive=False, active=True, arguments={}, priority=0,
            delivered=0, acked=0,
        )  # fmt: skip
        queue.consumers.append(consumer)
        self.consumers[tag] = consumer
        return consumer


class Connection:
    def __init__(self, broker: Broker, number: int, user: str, vhost: str = "/") -> None:
        self.id, self.user = number, user
        self.name = f"127.0.0.1:{40000 + number} -> 127.0.0.1:5672"
        self.vhost = broker.vhosts[vhost]  # raises KeyError
        self.state = "running"
        self.peer, self.local = ("127.0.0.1", 40000 + number), ("127.0.0.1", 5672)
        self.protocol, self.auth_mechanism, self.tls = "AMQP 0-9-1", "PLAIN", None
        self.channel_max, self.frame_max, self.heartbeat = 2047, 131072, 60
        self.connected_at_ms = 0
        self.recv_oct = self.send_oct = self.recv_cnt = self.send_cnt = self.send_pend = 0
        self.paused = self.blocked = False
        self.client_properties = {"connection_name": f"client {number}"}
        self.channels = {1: Channel(self, 1)}
        self.closed: tuple[int, str] | None = None
        self.gauge = None
        self._broker = broker

    user_provided_name = property(lambda self: self.client_properties["connection_name"])

    def cancel_consumer(self, consumer: Any) -> None:
        del consumer.channel.consumers[consumer.tag]

    def close(self, code: int = 320, text: str = "") -> None:
        self.closed = (code, text)
        self._broker.connections.pop(self.id, None)


class Definitions:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def create_vhost(self, name: str, **given: Any) -> None:
        self._broker.vhosts[name] = VHost(name)
        self.change_vhost(name, **given)

    def change_vhost(self, name: str, **given: Any) -> None:
        for key, value in given.items():
            if value is not None:
                setattr(self._broker.vhosts[name], key, value)

    def remove_vhost(self, name: str) -> VHost:
        return self._broker.vhosts.pop(name)

    prepare = staticmethod(lambda count, owned: [0] * count)


class Broker:
    """What the control socket knows as the broker."""

    def __init__(self, directory: Path) -> None:
        self.history, self.features, self.tiers = None, (), Tiers()
        self.transfers, self.shovels, self.stream_indexes = Transfers(), None, None
        self.certificates = SimpleNamespace(verifies_clients=False, files=[], authorities=None)
        self.stopping = False
        none = SimpleNamespace(count=0, aborted=0, size=0, closed=0)
        self.admission = SimpleNamespace(sockets=0, limit=1000, refused=0)
        self.admission.handshakes = self.admission.websockets = none
        own = {
            "stuck_after": 60.0,
            "problem_grace": 0.0,
            "http_timeout": 30.0,
            "tcp_backlog": 100,
            "data_dir": directory,
            "run_dir": directory,
            "no_sync": False,
            "max_message_size": 1 << 27,
            "http_port": 15672,
            "segment_size": 8 << 20,
            "tail_memory": 64 << 20,
            "disk_free_limit": 0,
            "disk_reserve": 0,
            "memory_high_watermark": 0.6,
            "consumer_timeout": 0,
            "message_store_index": "ram",
            "embed_below": 4096,
        }
        defaults = {item.name: item.default for item in settings()}
        self.config = SimpleNamespace(**{**defaults, **own})
        self.disk = MemoryDisk()
        self.files = SettingsFiles(directory, self.disk)
        self.access = Access(self.files)
        self.logins = Logins(self.access, Config(login_refusal_delay=0))
        self.policies = Policies(self.files)
        self.policy_sweep = PolicySweep(self)
        self.importing = Importing(self)
        self.stats = Stats()
        self.sampling = Sampling(self)
        self.sampling.node = NodeReading()
        self.watch = Alarms(self)  # type: ignore[arg-type]
        self.stall = Stall(self)  # type: ignore[arg-type]
        self.watch.judge(Reading(1 << 40, 1 << 40, 1 << 20))
        self.vhosts = {"/": VHost("/")}
        self.connections: dict[int, Connection] = {}
        self.definitions = Definitions(self)
        self.node_name = "leveret@test"
        self.started_at_ms = 1
        self.listeners = [{"protocol": "amqp", "ip_address": "127.0.0.1", "port": 5672}]
        self.server = ControlServer(self)
        self.synced_count = 0
        self.tasks: list[asyncio.Task[None]] = []
        self.problems: list[str] = []
        self.persister = SimpleNamespace(
            sync_times=Waits(),
            confirm_times=Waits(),
            sync_method=SyncMethod(),
            makes_holes=True,
            syncs=0,
            reads=0,
            bytes_written=0,
            segment_reads=0,
            segment_writes=0,
            quarantine=SimpleNamespace(count=0, entries=[]),
            failed_reads=FailedReads(),
        )

    def run_task(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.create_task(work))

    async def synced(self, records: bool = False) -> None:
        self.synced_count += 1
        self.files.flush()
        await asyncio.sleep(0)

    def emit(self, event: str, data: dict[str, Any]) -> None:
        self.server.publish(event, data)

    def add_user(self, name: str, *tags: str, vhosts: tuple[str, ...] = ("/",)) -> None:
        self.access.put_user(name, list(tags), rabbit_hash("secret"), SHA256)
        for vhost in vhosts:
            self.access.put_permission(name, vhost, ".*", ".*", ".*")

    def connect(self, user: str, vhost: str = "/") -> Connection:
        number = max(self.connections, default=0) + 1
        self.connections[number] = Connection(self, number, user, vhost)
        return self.connections[number]

    async def start(self) -> BrokerClient:
        path = Path(self.config.data_dir) / "control.sock"
        await self.server.start(path)
        return BrokerClient(path)

    @property
    def alarms(self) -> set[str]:
        return self.watch.active

    @property
    def alarm_reason(self) -> str:
        return self.watch.reason

    async def stop(self) -> None:
        await self.server.close()
        self.logins.close()

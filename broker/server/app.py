"""The broker process: builds its parts, starts and stops them in order, and is the host that
connections ask.

Start: lock the data directory, read settings, replay definitions, find the messages, then listen.
Stop: no new connections, tell clients (320), let them finish, write and sync everything, then end.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import platform
import resource
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any

from broker import features
from broker.access import Access
from broker.kernel import clock
from broker.kernel.contracts import Topology
from broker.kernel.turn import Turn
from broker.process import pulse
from broker.process.allocator import map_large_blocks
from broker.process.logs import inform
from broker.server.admission import Admission
from broker.server.alarms import Alarms, reserve_of
from broker.server.ciphertext import Ciphertext
from broker.server.clock_watch import ClockWatch
from broker.server.control import ControlServer
from broker.server.control.node_verbs import version
from broker.server.importing import Importing
from broker.server.leaving import Leaving
from broker.server.listeners import CannotListen
from broker.server.loading import Loading
from broker.server.logins import Logins, limits_of
from broker.server.loop import run
from broker.server.marks import Marks
from broker.server.overrides import Overrides
from broker.server.periodic import PeriodicWork
from broker.server.policy_sweep import PolicySweep
from broker.server.pressure import Pressure
from broker.server.proxy_protocol import Sources
from broker.server.reload import Reload
from broker.server.revocation import Revocation
from broker.server.sampling import Sampling, kept_history
from broker.server.service import Service
from broker.server.sign_in import SignIn
from broker.server.sockets import Sockets
from broker.server.stall import Stall
from broker.server.tcp import RECEIVE_BYTES
from broker.server.timers import TimingWheel
from broker.serving.certificates import CertificateError, Certificates
from broker.settings.bounds import bounds_of
from broker.settings.files import SettingsError, SettingsFiles
from broker.stats import Stats
from broker.store.bodies.settings import body_settings
from broker.store.commit.settings import direct_files, persister_of
from broker.store.directory import data_directory, identities, snapshot
from broker.store.directory.one_file_system import TwoFileSystems
from broker.store.files import disk
from broker.vhosts.definitions import Definitions
from broker.vhosts.policies import Policies
from broker.vhosts.vhost import VHost
from broker.wire.clients import Clients
from broker.wire.connection import Connection
from broker.wire.transaction import Uncommitted

if TYPE_CHECKING:
    from broker.settings.config import Config

log = logging.getLogger("leveret.broker")

TOLD = ("connection_closed", "queue_deleted")
"""Hooks of features that are called when a client leaves or asks for it."""
ONLY_SHOWN = frozenset(
    {"connection.created", "connection.closed", "binding.created", "alarm.set", "alarm.cleared"}
)
"""Events that only subscribers of the control socket hear of."""
EXIT_SYNC_FAILED = 74  # EX_IOERR of sysexits.h


class StartError(Exception):
    """The broker cannot start; the text is one line for the person who started it, `status` the
    exit status."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class Broker(SignIn):
    """Everything that lives as long as the process. Sessions see it as `broker.wire.host.Host`."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.node_name = f"leveret@{socket.gethostname()}"
        self.started_at_ms = clock.now()
        self.topology, self.turn, self.clients = Topology(), Turn(), Clients()
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        open_files_limit = min(config.open_files_max, descriptors // 2)
        unfinished_max = min(config.unfinished_max, max(1, descriptors // 8))
        stored = open_files_limit + direct_files(config, open_files_limit) + unfinished_max
        self.admission = Admission(descriptors, stored, lambda: self.config)
        self.admission.configure(config.connections_max)
        self.certificates = Certificates(ask_clients=True)
        self.proxies = Sources(config.proxy_protocol_sources)
        self.persister = persister_of(config, self.turn.wake, open_files_limit)
        self.persister.contents.limit = unfinished_max
        self.persister.failed = self._disk_failed
        self.pressure = Pressure(self)
        self.persister.relieved = self.pressure.relieved
        self.turn.after = self.persister.collect
        self.turn.reading.share = config.publish_share
        self.files = SettingsFiles(config.data_dir, disk)
        self.access = Access(
            self.files, login_limits=limits_of(config), rehash_at_login=config.rehash_at_login
        )
        self.policies = Policies(self.files, config.policies_max, config.policy_steps_max)
        self.definitions = Definitions(str(config.data_dir), self.files, self._make_vhost)
        self.timers = TimingWheel()
        self.later, self.punctual = self.timers.later, self.timers.punctual
        self.measure(Stats(clock.now))
        self.history = kept_history(config)
        self.transfers: Any = None  # set by the features of these names
        self.shovels: Any = None
        self.federation: Any = None
        self.stream_indexes: Any = None
        self.tiers: Any = None
        self.histories: Any = None
        self.features = features.build(self)
        self._told = {hook: features.asked(self.features, hook) for hook in TOLD}
        self.connections: dict[int, Connection] = {}
        # A quarter of the sockets at most: new clients shall find room.
        self.leaving = Leaving(lambda: min(self.config.closing_max, self.admission.limit // 4 or 1))
        self.reply_queues: dict[str, Any] = {}
        self.uncommitted = Uncommitted()
        self.service, self.overrides = Service(self), Overrides(self)
        self._periodic, self.revocation = PeriodicWork(self), Revocation(self)
        self.watch, self.stall = Alarms(self), Stall(self)
        self.policy_sweep = PolicySweep(self)
        self.importing = Importing(self)
        self.loading, self.marks = Loading(self), Marks(self)
        self.receive_buffer = memoryview(bytearray(RECEIVE_BYTES))
        self.sockets = Sockets(self.turn, self.persister, self.receive_buffer, self.pressure.pause)
        self.ciphertext = Ciphertext(self.receive_buffer)
        self.server_properties = _server_properties(self.node_name)
        self.stopping, self.backing_up, self.exit_status = False, False, 0
        self._ids = itertools.count(1)
        self._tasks: set[asyncio.Task[Any]] = set()

    def measure(self, stats: Stats) -> None:
        """Counts and samples in `stats` from now on."""
        self.stats = stats
        self.channel_opened = stats.churn.channel_opened
        self.channel_closed = stats.churn.channel_closed

    @property
    def vhosts(self) -> dict[str, VHost]:
        return self.definitions.vhosts

    @property
    def listeners(self) -> list[dict[str, Any]]:
        """What listens where, as rows of the overview."""
        return self.service.listeners.rows

    @property
    def alarms(self) -> set[str]:
        """The alarms in force, of `disk` and `memory`: nothing is published meanwhile."""
        return self.watch.active

    @property
    def alarm_reason(self) -> str:
        return self.watch.reason

    @property
    def problems(self) -> list[str]:
        """What recovery found wrong, as sentences."""
        return self.definitions.problems

    # -- start -------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Everything before the loop runs. Raises StartError."""
        config = self.config
        try:
            config.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            config.run_dir.mkdir(exist_ok=True, mode=0o700)
            self._lock = disk.lock(str(config.data_dir / "lock"))
        except BlockingIOError:
            raise StartError(
                f"the data directory {config.data_dir} is in use by another broker",
                os.EX_UNAVAILABLE,
            ) from None
        except OSError as error:
            raise StartError(
                f"cannot use the data directory {config.data_dir}: {error.strerror}", os.EX_CONFIG
            ) from None
        try:
            self.certificates.load(config)
        except CertificateError as error:
            raise StartError(str(error), os.EX_CONFIG) from None
        # A process that was killed left its addresses in the file; they are no longer valid.
        self.service.listeners.unsay_where()
        try:
            self.persister.open_root()
            snapshot.drop(str(config.data_dir))
            reserve_of(config).give_for_start(disk.usage(str(config.data_dir))[0])
            data_directory.check_schema(str(config.data_dir))
            self.identities = identities.identities(str(config.data_dir))
            self.loading.prepare()
            self.policies.load()
            if failed := data_directory.failed_sync(str(config.data_dir)):
                log.warning("the last run ended with a failed disk: writing everything again")
                data_directory.write_again(str(config.data_dir))
            quarantine = self.persister.quarantine
            quarantine.name_of = self.definitions.queue_name
            quarantine.load()
            self.marks.ask(failed)
            self.definitions.recover(self.loading.first_vhost)
            self.persister.origins.boot = self.definitions.boot
            for feature in self.features:
                feature.start(clock.now())
            self.history.start(clock.now())
            self.files.flush()
            self.persister.sync_file_system()
            if failed:
                data_directory.forget_failed_sync(str(config.data_dir))
            self.marks.recovered()
        except (SettingsError, TwoFileSystems) as error:
            raise StartError(str(error), os.EX_CONFIG) from None
        except (OSError, ValueError) as error:
            raise StartError(f"cannot recover {config.data_dir}: {error}", os.EX_IOERR) from None
        for name, vhost in self.vhosts.items():
            log.info(
                "vhost '%s': %d queues, %d messages",
                name,
                len(vhost.queues),
                sum(q.messages_ready for q in vhost.queues.values()),
            )

    async def start(self) -> None:
        """Starts the threads, opens every listener, then says where they are. Raises StartError."""
        self.loop = loop = asyncio.get_running_loop()
        pulse.begin(loop.call_later)
        self.timers.start(loop)
        self.turn.schedule = loop.call_soon
        self.logins = Logins(self.access, self.config)
        self.sampling = Sampling(self)
        self.control = ControlServer(self)
        self.persister.start()
        for thread, on_ready in self.persister.threads.items():
            loop.add_reader(thread.event_fd, on_ready)
            self.sockets.watch(thread.event_fd, on_ready)
        for vhost in self.vhosts.values():
            vhost.start()
        self.watch.start()
        try:
            await self.loading.load()
            await self.service.listeners.open()
        except SettingsError as error:
            raise StartError(str(error), os.EX_CONFIG) from None
        except CannotListen as error:
            raise StartError(str(error), os.EX_UNAVAILABLE) from None
        await self.control.start(self.config.control_socket)
        self.marks.started()
        self.sampling.start()
        self._periodic.start()
        ClockWatch().watch(self)
        loop.add_signal_handler(signal.SIGHUP, Reload(self).ask)
        await self.service.listeners.say_where()
        log.info("listening: %s", self.service.listeners.told)

    def _make_vhost(self, name: str, incarnation: int, directory: str, **properties: Any) -> VHost:
        vhost = VHost(
            name,
            incarnation,
            directory,
            persister=self.persister,
            turn=self.turn,
            topology=self.topology,
            body_settings=body_settings(self.config),
            bounds=bounds_of(self.config),
            policies=self.policies,
            next_incarnation=self.definitions.next_incarnation,
            emit=self.emit,
            later=self.punctual,
            features=self.features,
            **properties,
        )
        vhost.queue_limit = lambda: self.access.vhost_limit(name, "max-queues")
        return vhost

    # -- connections -------------------------------------------------------------------------------

    def accept(
        self,
        transport: Any,
        peer: tuple[str, int],
        local: tuple[str, int],
        listener: str,
        fd: int = -1,
        tls: Any = None,
        proxied: bool = False,
    ) -> Connection:
        """A new connection of a listener. `proxied`: a proxy has sent the peer's address."""
        return Connection(
            self,
            self.turn,
            transport,
            fd,
            id=next(self._ids),
            peer=peer,
            local=local,
            listener=listener,
            connected_at_ms=clock.now(),
            tls=tls,
            proxied=proxied,
        )

    def opened(self, connection: Connection) -> None:
        self.connections[connection.id] = connection
        connection.set_alarmed(bool(self.alarms))
        self.stats.churn.connection_opened(connection)
        if self.control.sessions:
            self.emit("connection.created", _facts(connection))
        inform(
            log,
            connection.peer_host,
            "connection %s: user '%s' opened vhost '%s'",
            connection.name,
            connection.user,
            connection.vhost.name,
        )

    def closed(self, connection: Connection) -> None:
        self.pressure.forget(connection)
        if self.connections.pop(connection.id, None) is not None:
            self.stats.churn.connection_closed(connection)
            for told in self._told["connection_closed"]:
                told(connection, clock.now())
            if self.control.sessions:
                self.emit("connection.closed", _facts(connection))
            inform(
                log,
                connection.peer_host,
                "connection %s closed%s",
                connection.name,
                f": {connection.close_reason}" if connection.close_reason else "",
            )

    # -- changes -----------------------------------------------------------------------------------

    async def synced(self, records: bool = False) -> None:
        """Returns when every change of definitions and settings so far is on disk, and with
        `records` every message."""
        done: asyncio.Future[None] = self.loop.create_future()

        def tell() -> None:
            if not done.done():
                done.set_result(None)

        self.persister.after_round(tell, records=records)
        if self.files.dirty:
            await self.loop.run_in_executor(None, self.files.flush)
        await done

    def emit(self, event: str, data: dict[str, Any]) -> None:
        """Tells statistics, features and subscribers what happened."""
        if event not in ONLY_SHOWN:
            self._follow(event, data)
        if hasattr(self, "control") and self.control.sessions:
            self.control.publish(event, data)

    def _follow(self, event: str, data: dict[str, Any]) -> None:
        """What else an event is followed by. Takes queues and exchanges out of its data."""
        queue = data.pop("queue", None)
        exchange = data.pop("exchange", None)
        if queue is not None:
            self.stats.queue_deleted(queue)
            for told in self._told["queue_deleted"]:
                told(queue, clock.now())
        elif exchange is not None:
            self.stats.exchange_deleted(data["vhost"], exchange)
        elif event == "queue.created":
            self.stats.queue_declared(data["vhost"], True)
        else:
            # A user, a permission or a limit changed: what routes remember of them is void.
            self.topology.changed()
        if event in ("user.deleted", "permission.changed"):
            self.revocation.changed(event, data.get("user") or data["name"])

    def run_task(self, work: Any) -> asyncio.Task[Any]:
        """Runs a coroutine by itself; the task that is returned may be cancelled."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- stop --------------------------------------------------------------------------------------

    def _disk_failed(self, text: str, doubtful: bool) -> None:
        log.critical(
            "the disk failed: %s. Nothing is confirmed from now on; "
            "the broker ends and recovers at its next start",
            text,
        )
        if doubtful:
            with contextlib.suppress(OSError):
                data_directory.note_failed_sync(str(self.config.data_dir), text)
        self.exit_status = EXIT_SYNC_FAILED
        # Memory may differ from the disk: clients get no further frames, and nothing is written.
        logging.shutdown()
        os._exit(EXIT_SYNC_FAILED)

    async def run(self) -> int:
        """Starts, serves until SIGTERM or SIGINT, stops."""
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await self.start()
        await stop.wait()
        await self.stop()
        return self.exit_status

    async def stop(self) -> None:
        """Clean stop: every client gets connection.close, everything is written and synced."""
        self.stopping = True
        log.info("stopping")
        self.service.listeners.stop_accepting()
        connections = list(self.connections.values())
        for connection in connections:
            connection.close(320, "broker forced connection closure with reason 'shutdown'")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(3.0):
                while self.connections or self.leaving:  # noqa: ASYNC110 (an end that comes once)
                    await asyncio.sleep(0.02)
        for connection in (*self.connections.values(), *self.leaving):
            connection.drop()
        await asyncio.sleep(0)
        await self.sampling.close()
        await self.watch.close()
        await self.control.close()
        await self.policy_sweep.close()
        await self.service.listeners.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for thread in self.persister.threads:
            self.loop.remove_reader(thread.event_fd)
        self._periodic.stop()
        for feature in self.features:
            feature.stop(clock.now())
        for vhost in self.vhosts.values():
            vhost.close()
        self.persister.stop()
        for vhost in self.vhosts.values():
            vhost.closed()
        try:
            self.files.flush()
        except OSError as error:
            log.error("the last changes of settings are not on the disk: %s", error)
        self.marks.stopped()
        self.logins.close()
        self.service.listeners.unsay_where()
        log.info("stopped")


def _server_properties(node_name: str) -> dict[str, Any]:
    """What connection.start says of the broker, beside its capabilities."""
    return {
        "product": "Leveret",
        "version": version(),
        "platform": f"Python {platform.python_version()}",
        "cluster_name": node_name,
        "information": "A message broker as one appliance",
    }


def _facts(connection: Connection) -> dict[str, Any]:
    return {"name": connection.name, "user": connection.user, "vhost": connection.vhost.name}


def main(config: Config) -> int:
    """Runs the broker until a signal stops it. Returns the exit status; a failed start is one line
    on standard error."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    map_large_blocks()
    broker = Broker(config)
    try:
        broker.recover()
        return run(broker.sockets, broker.run())
    except StartError as error:
        print(f"leveret broker: {error}", file=sys.stderr)
        return error.status

"""SIGHUP in the broker: settings and certificates are read again, in a thread, and put into force
together or not at all.

Connections that are open keep what they were given: frame size, heartbeat, certificate. What is
asked anew each time (limits at channel.open, trusted proxies, the room for connections) holds at
once.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING

from broker.server.logins import limits_of
from broker.server.pace import Pace
from broker.server.proxy_protocol import Sources
from broker.serving import reloading
from broker.serving.certificates import CertificateError, Certificates
from broker.serving.reloading import Reloaded
from broker.settings.config import ConfigError

if TYPE_CHECKING:
    from broker.server.app import Broker

log = logging.getLogger("leveret.broker")


class Reload:
    """Reads settings again, once at a time."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._one = asyncio.Lock()

    def ask(self) -> None:
        """The handler of the signal."""
        self._broker.run_task(self.run())

    async def run(self) -> bool:
        """Whether the settings are in force; if not, nothing has changed."""
        async with self._one:
            broker = self._broker
            try:
                reloaded, certificates = await asyncio.get_running_loop().run_in_executor(
                    None, self._read
                )
            except (ConfigError, CertificateError) as error:
                reloading.refuse(log, error)
                return False
            old = broker.overrides.without(broker.config)
            in_force = reloaded._replace(config=broker.overrides.over(reloaded.config))
            self._put_into_force(in_force, certificates)
            if broker.config.consumer_timeout != old.consumer_timeout:
                broker.run_task(self._watch_acks())
            reloading.tell(log, old, reloaded)
            for name in broker.overrides.rows():
                if name in reloaded.at_once:
                    log.warning("settings: %s was changed until the next start, and stays", name)
            if certificates.context is not None:
                names = ", ".join(certificates.names)
                log.info("certificates are read again%s", f", for {names} too" if names else "")
            return True

    def _read(self) -> tuple[Reloaded, Certificates]:
        """Waits for the disk. Raises ConfigError or CertificateError."""
        config = self._broker.overrides.without(self._broker.config)
        reloaded = reloading.read_again(config, os.environ)
        certificates = Certificates(ask_clients=True)
        certificates.load(reloaded.config)
        return reloaded, certificates

    async def _watch_acks(self) -> None:
        """Every open channel goes by the new consumer timeout."""
        pace = Pace()
        for connection in list(self._broker.connections.values()):
            for channel in connection.channels.values():
                channel.watch_acks()
                await pace()

    def _put_into_force(self, reloaded: Reloaded, certificates: Certificates) -> None:
        broker, config = self._broker, reloaded.config
        broker.config = config
        broker.certificates = certificates
        broker.turn.reading.share = config.publish_share
        broker.proxies = Sources(config.proxy_protocol_sources)
        broker.admission.configure(config.connections_max)
        broker.service.listeners.set_options()
        broker.watch.configure(config)
        broker.logins.configure(config)
        broker.access.throttle.configure(limits_of(config))
        broker.access.rehash_at_login = config.rehash_at_login
        reloading.follow_log("broker", reloaded)

"""Who gets in: what connections ask of the broker while they open."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.access import Access, Job, Refused, User
from broker.access.behalf import counts_as_local
from broker.schema.errors import ConnectionForced, NotAllowed
from broker.server.logins import Logins
from broker.serving.addresses import is_loopback
from broker.wire.handshake import EXTERNAL, MECHANISMS

if TYPE_CHECKING:
    from broker.server.service import Service
    from broker.serving.certificates import Certificates
    from broker.wire.connection import Connection


class SignIn:
    """A part of `Broker`."""

    access: Access
    certificates: Certificates
    connections: dict[int, Connection]
    logins: Logins
    loop: asyncio.AbstractEventLoop
    service: Service

    def run_task(self, work: Any) -> asyncio.Task[Any]:
        raise NotImplementedError

    def login(self, connection: Connection, user: str, password: str) -> asyncio.Task[Any] | str:
        """A task that answers; or the user's name, where no password has to be looked at."""
        protocol = "websocket" if connection.listener in ("ws", "wss") else "amqp"
        begun = self.logins.begin(
            user, password, connection.peer[0], protocol, from_here=self._is_from_here(connection)
        )
        if isinstance(begun, User):
            return begun.name
        return self.run_task(self._login(connection, begun, protocol))

    async def _login(self, connection: Connection, begun: Refused | Job, protocol: str) -> None:
        outcome = await self.logins.outcome(begun, protocol)
        # What came behind the password is carried out then: many hashes may be done in one turn.
        if isinstance(outcome, Refused):
            answer = partial(connection.login_refused, outcome.reason)
        else:
            answer = partial(connection.logged_in, outcome.name)
        connection.when_there_is_time(answer)

    def mechanisms(self, connection: Connection) -> tuple[str, ...]:
        """EXTERNAL only where it would succeed: there are clients that prefer it where it is
        offered, and they would fail though they have a password."""
        if self.takes_external(connection) and self.access.admits(
            connection.tls.login_name, self._is_from_here(connection)
        ):
            return (*MECHANISMS, EXTERNAL)
        return MECHANISMS

    def takes_external(self, connection: Connection) -> bool:
        return connection.tls is not None and self.certificates.verifies_clients

    def login_external(self, connection: Connection) -> None:
        self.loop.call_soon(self._login_external, connection)

    def _login_external(self, connection: Connection) -> None:
        outcome = self.logins.check_certificate(
            connection.tls.login_name,
            connection.peer[0],
            "websocket" if connection.listener in ("ws", "wss") else "amqp",
            from_here=self._is_from_here(connection),
        )
        if isinstance(outcome, Refused):
            connection.login_refused(outcome.reason)
        else:
            connection.logged_in(outcome.name)

    def admit(self, connection: Connection, vhost: str) -> None:
        limit = self.access.vhost_limit(vhost, "max-connections")
        if (
            limit is not None
            and sum(1 for each in self.connections.values() if each.vhost.name == vhost) >= limit
        ):
            raise NotAllowed(
                f"access to vhost '{vhost}' refused for user '{connection.user}': "
                f"connection limit ({limit}) is reached"
            )
        limit = self.access.user_limit(connection.user, "max-connections")
        if (
            limit is not None
            and sum(1 for each in self.connections.values() if each.user == connection.user)
            >= limit
        ):
            raise NotAllowed(
                f"connection refused for user '{connection.user}': "
                f"user connection limit ({limit}) is reached"
            )
        if self.service.refusal:
            # 320 means "try again later"; on 530 our shovels wait a minute, as for a lost right.
            raise ConnectionForced(self.service.refusal)

    def channels_of(self, user: str) -> int:
        return sum(each.channel_count for each in self.connections.values() if each.user == user)

    def _is_from_here(self, connection: Connection) -> bool:
        """Whether the client is on this machine, and not a bridge on behalf of a user elsewhere;
        an address that a proxy tells never is."""
        return (
            not connection.proxied
            and is_loopback(connection.peer[0])
            and (not connection.on_behalf or counts_as_local(connection.client_properties))
        )

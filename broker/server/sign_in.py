"""Who gets in: what sessions ask of the broker while they open."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from broker.access import Access, Refused, User
from broker.access.behalf import counts_as_local
from broker.schema.errors import NotAllowed
from broker.server.logins import Logins
from broker.serving.addresses import is_loopback
from broker.wire.handshake import EXTERNAL, MECHANISMS

if TYPE_CHECKING:
    from broker.server.service import Service
    from broker.serving.certificates import Certificates
    from broker.wire.session import Session


class SignIn:
    """A part of `Broker`."""

    access: Access
    certificates: Certificates
    connections: dict[int, Session]
    logins: Logins
    loop: asyncio.AbstractEventLoop
    service: Service

    def run_task(self, work: Any) -> asyncio.Task[Any]:
        raise NotImplementedError

    def login(self, session: Session, user: str, password: str) -> asyncio.Task[Any]:
        return self.run_task(self._login(session, user, password))

    async def _login(self, session: Session, user: str, password: str) -> None:
        outcome = await self._check(session, user, password)
        if isinstance(outcome, Refused):
            session.login_refused(outcome.reason)
        else:
            session.logged_in(outcome.name)

    async def _check(self, session: Session, user: str, password: str) -> User | Refused:
        return await self.logins.check(
            user,
            password,
            session.peer[0],
            "websocket" if session.listener in ("ws", "wss") else "amqp",
            from_here=self._is_from_here(session),
        )

    def mechanisms(self, session: Session) -> tuple[str, ...]:
        """EXTERNAL only where it would succeed: there are clients that prefer it where it is
        offered, and they would fail though they have a password."""
        if self.takes_external(session) and self.access.admits(
            session.tls.login_name, self._is_from_here(session)
        ):
            return (*MECHANISMS, EXTERNAL)
        return MECHANISMS

    def takes_external(self, session: Session) -> bool:
        return session.tls is not None and self.certificates.verifies_clients

    def login_external(self, session: Session) -> None:
        self.loop.call_soon(self._login_external, session)

    def _login_external(self, session: Session) -> None:
        outcome = self.logins.check_certificate(
            session.tls.login_name,
            session.peer[0],
            "websocket" if session.listener in ("ws", "wss") else "amqp",
            from_here=self._is_from_here(session),
        )
        if isinstance(outcome, Refused):
            session.login_refused(outcome.reason)
        else:
            session.logged_in(outcome.name)

    def admit(self, session: Session, vhost: str) -> None:
        limit = self.access.vhost_limit(vhost, "max-connections")
        if (
            limit is not None
            and sum(1 for each in self.connections.values() if each.vhost.name == vhost) >= limit
        ):
            raise NotAllowed(
                f"access to vhost '{vhost}' refused for user '{session.user}': "
                f"connection limit ({limit}) is reached"
            )
        limit = self.access.user_limit(session.user, "max-connections")
        if (
            limit is not None
            and sum(1 for each in self.connections.values() if each.user == session.user) >= limit
        ):
            raise NotAllowed(
                f"connection refused for user '{session.user}': "
                f"user connection limit ({limit}) is reached"
            )
        if self.service.refusal:
            raise NotAllowed(self.service.refusal)

    def _is_from_here(self, session: Session) -> bool:
        """Whether the client is on this machine, and not a bridge on behalf of somebody elsewhere;
        an address that a proxy tells never is."""
        return (
            not session.proxied
            and is_loopback(session.peer[0])
            and counts_as_local(session.client_properties)
        )

"""Opens the connections of a shovel: to this broker over its private socket, to others over TCP or
TLS at an address that was checked."""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from broker.client.aio import Connection, connect
from broker.client.errors import ClientError, Closed, ConnectionClosed, TLSFailed
from broker.client.uri import BadURI, Endpoint, is_here, parse
from broker.schema.shovel_keys import ON_BEHALF_OF
from broker.settings.config import Config
from management.bridges.addresses import Addresses
from management.bridges.pace import Pace
from management.bridges.plan import Plan, ShovelFailed

ACCESS_REFUSED = 403
NOT_FOUND = 404
NOT_ALLOWED = 530
STEPS = {ACCESS_REFUSED: "login", NOT_ALLOWED: "virtual host", NOT_FOUND: "virtual host"}
"""Which part of connecting a server has refused, by its reply code."""

Login = Callable[[str | None, str], Awaitable[tuple[str, str]]]
"""Gives user and password for an owner and a vhost of this broker. Raises ShovelFailed."""
Ask = Callable[[str, str], Awaitable[dict[str, Any]]]
"""Gives {dead_letter_exchange, stream} of a vhost's queue here. Raises ShovelFailed."""


@dataclasses.dataclass(frozen=True)
class End:
    """One connection, and whether it is to this broker. `shown` is its URI without secrets."""

    connection: Connection
    is_here: bool
    shown: str


class Ends:
    """What opening a connection needs to know."""

    def __init__(
        self, config: Config, login: Login, source: Ask | None = None, pace: Pace | None = None
    ) -> None:
        self._pace = pace or Pace(config.bridges_connecting_max)
        self.addresses = Addresses(config.bridges_allowed, config.bridges_denied)
        self._socket = str(config.local_socket.absolute())
        self._certificates = dict(each.split("=", 1) for each in config.bridges_certificates)
        self._login = login
        self.source = source

    async def open(self, plan: Plan, uri: str, purpose: str) -> End:
        """Connects and logs in. Raises ShovelFailed."""
        endpoint = self.endpoint(plan, uri)
        label = plan.label or f"Shovel {plan.name} in {plan.vhost}"
        properties = {
            "connection_name": f"{label} ({purpose})"[:255],
            ON_BEHALF_OF: plan.on_behalf_of,
        }
        endpoint = dataclasses.replace(endpoint, properties=properties)
        if is_here(uri):
            async with self._pace.turn(""):
                return await self._open_here(plan, uri, endpoint)
        addresses = await self.addresses.resolve(endpoint.host)
        async with self._pace.turn(f"{endpoint.host} {endpoint.port}"):
            return await _open_there(plan, endpoint, addresses)

    async def _open_here(self, plan: Plan, uri: str, endpoint: Endpoint) -> End:
        shown = f"amqp:///{_shown_vhost(endpoint)}"
        endpoint = dataclasses.replace(endpoint, path=self._socket)
        if urlsplit(uri).username is None:
            user, password = await self._login(plan.owner, endpoint.vhost)
            endpoint = dataclasses.replace(endpoint, user=user, password=password)
        try:
            return End(await connect(endpoint), True, shown)
        except ClientError as error:
            raise _turned_away(error, plan, shown, "") from None

    def endpoint(self, plan: Plan, uri: str) -> Endpoint:
        """Where a URI leads, with the files that its certificates are. Raises ShovelFailed."""
        try:
            endpoint = parse(uri, vhost=plan.vhost)
        except BadURI as error:
            raise ShovelFailed(f"the URI cannot be used: {error}", stops=True) from None
        if endpoint.tls is None:
            return endpoint
        tls = endpoint.tls
        tls = dataclasses.replace(
            tls,
            ca_file=self.certificate(tls.ca_file),
            certificate_file=self.certificate(tls.certificate_file),
            key_file=self.certificate(tls.key_file),
        )
        return dataclasses.replace(endpoint, tls=tls)

    def certificate(self, named: Path | str | None) -> Path | None:
        """The file of a name of `bridges_certificates`. Raises ShovelFailed."""
        if named is None:
            return None
        found = self._certificates.get(str(named))
        if found is None:
            raise ShovelFailed(
                f"there is no certificate '{str(named)[:100]}' (bridges_certificates)",
                stops=True,
                step="TLS",
            )
        return Path(found)


async def _open_there(plan: Plan, endpoint: Endpoint, addresses: list[str]) -> End:
    """Connects to the first address at which that works. Raises ShovelFailed."""
    shown = f"{endpoint.shown}/{_shown_vhost(endpoint)}"
    error = ClientError("there is no address")
    for address in addresses:
        try:
            return End(await connect(_at(endpoint, address)), False, shown)
        except ConnectionClosed as refused:
            raise _turned_away(refused, plan, shown, address) from None
        except ClientError as problem:
            error = problem
    raise failed(error, shown, is_here=False)


def _at(endpoint: Endpoint, address: str) -> Endpoint:
    """The same at one of its addresses; the certificate is still that of the name."""
    tls = endpoint.tls
    if tls is not None:
        tls = dataclasses.replace(tls, server_name=endpoint.server_name)
    return dataclasses.replace(endpoint, host=address, tls=tls)


def failed(error: ClientError, where: str, *, is_here: bool) -> ShovelFailed:
    """What an error of the client means for a shovel. At this broker a lost right stops it."""
    if isinstance(error, Closed):
        stops = is_here and error.code in (ACCESS_REFUSED, NOT_ALLOWED)
        step = STEPS.get(error.code, "connection")
        return ShovelFailed(f"{where}: {error.text} ({error.code})", stops=stops, step=step)
    step = "TLS" if isinstance(error, TLSFailed) else "connection"
    return ShovelFailed(f"{where}: {_without_uri(error)}", step=step)


def _turned_away(error: ClientError, plan: Plan, where: str, address: str) -> ShovelFailed:
    """What an error at the login means; `address` is "" at this broker."""
    found = failed(error, where, is_here=not address)
    is_near = not address or ipaddress.ip_address(address.partition("%")[0]).is_loopback
    is_refused = isinstance(error, Closed) and error.code == ACCESS_REFUSED
    if is_near and is_refused and plan.on_behalf_of.get("standing") != "local":
        hint = (
            "; users who may log in from this machine only (as guest) do not admit a shovel that"
            " was written by a user who could be elsewhere"
        )
        return ShovelFailed(found.reason + hint, stops=found.stops, step=found.step)
    return found


def _without_uri(error: Exception) -> str:
    """The text of an error without the address that it begins with."""
    text = str(error)
    head, colon, rest = text.partition(": ")
    return rest if colon and head.startswith(("amqp://", "amqps://", "unix:")) else text


def _shown_vhost(endpoint: Endpoint) -> str:
    return "" if endpoint.vhost == "/" else endpoint.vhost

"""Tries the ends of a definition step by step, and says at which one it fails. Nothing is declared,
published or consumed."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any
from urllib.parse import urlsplit

from broker.client.errors import ClientError
from broker.client.uri import is_here
from management.bridges.ends import NOT_FOUND, End, Ends, failed
from management.bridges.plan import Plan, ShovelFailed

TIMEOUT_S = 20.0


class Trial:
    """One trial. `steps` are {step, is_fine, text} in the order in which they were tried."""

    def __init__(self, plan: Plan, ends: Ends) -> None:
        self._plan = plan
        self._ends = ends
        self.steps: list[dict[str, Any]] = []

    def note(self, step: str, is_fine: bool, text: str) -> None:
        self.steps.append({"step": step, "is_fine": is_fine, "text": text})

    async def run(self) -> None:
        """Tries every URI of both ends."""
        given = self._plan.given
        source = {"queue": given["src-queue"], "exchange": given["src-exchange"]}
        target = {"queue": given["dest-queue"], "exchange": given["dest-exchange"]}
        for uri in self._plan.uris("src-uri"):
            await self._broker("Source", uri, given["src-predeclared"], source)
        for uri in self._plan.uris("dest-uri"):
            if self._plan.is_web:
                await self._web(uri)
            else:
                await self._broker("Destination", uri, given["dest-predeclared"], target)

    async def _broker(
        self, what: str, uri: str, must_exist: bool, named: dict[str, str | None]
    ) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                if not await self._resolves(what, uri):
                    return
                end = await self._ends.open(self._plan, uri, "trial")
        except ShovelFailed as error:
            self.note(f"{what}: connection", False, error.reason)
            return
        except TimeoutError:
            self.note(f"{what}: connection", False, f"no answer within {TIMEOUT_S:g} seconds")
            return
        try:
            secure = " over TLS" if end.connection.endpoint.tls is not None else ""
            self.note(f"{what}: connection", True, f"{_shown(end)} lets the user in{secure}")
            for kind, name in named.items():
                if name:
                    await self._exists(what, end, kind, name, must_exist or kind == "exchange")
        finally:
            with contextlib.suppress(ClientError, OSError):
                await end.connection.close()

    async def _resolves(self, what: str, uri: str) -> bool:
        if is_here(uri):
            return True
        endpoint = self._ends.endpoint(self._plan, uri)
        try:
            found = await self._ends.addresses.resolve(endpoint.host, endpoint.port)
        except ShovelFailed as error:
            self.note(f"{what}: address", False, error.reason)
            return False
        self.note(f"{what}: address", True, _resolved(endpoint.host, found))
        return True

    async def _exists(self, what: str, end: End, kind: str, name: str, must_exist: bool) -> None:
        step = f"{what}: {kind}"
        more: dict[str, Any] = {"type": "direct"} if kind == "exchange" else {}
        try:
            async with asyncio.timeout(TIMEOUT_S), end.connection.channel() as channel:
                reply = await channel.call(f"{kind}.declare", **{kind: name}, passive=True, **more)
        except ClientError as error:
            if getattr(error, "code", 0) == NOT_FOUND and not must_exist:
                self.note(step, True, f"{kind} '{name}' is not there; it will be declared")
            else:
                self.note(step, False, failed(error, end.shown, is_here=end.is_here).reason)
        except TimeoutError:
            self.note(step, False, f"no answer within {TIMEOUT_S:g} seconds")
        else:
            count = reply.get("message_count")
            has = f" and has {count} messages" if count is not None else ""
            self.note(step, True, f"{kind} '{name}' is there{has}")

    async def _web(self, uri: str) -> None:
        """Connects and, with https, checks the certificate. No request is sent."""
        parts = urlsplit(uri)
        host, secure = parts.hostname or "", parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        try:
            found = await self._ends.addresses.resolve(host, port)
        except ShovelFailed as error:
            self.note("Destination: address", False, error.reason)
            return
        self.note("Destination: address", True, _resolved(host, found))
        try:
            async with asyncio.timeout(TIMEOUT_S):
                _, writer = await asyncio.open_connection(
                    found[0], port, ssl=secure, server_hostname=host if secure else None
                )
        except TimeoutError:
            reason = f"no connection within {TIMEOUT_S:g} seconds"
            self.note("Destination: connection", False, reason)
        except OSError as error:
            self.note("Destination: connection", False, str(error.strerror or error))
        else:
            writer.close()
            how = "its certificate is valid" if secure else "it accepts connections"
            self.note("Destination: connection", True, f"{host} port {port}: {how}")


def _shown(end: End) -> str:
    if not end.is_here:
        return end.shown
    return f"this broker, virtual host '{end.connection.endpoint.vhost}',"


def _resolved(host: str, found: list[str]) -> str:
    """What the addresses of a host are, where they are not its name."""
    if found == [host]:
        return f"connections to {host} are allowed"
    return f"{host} is {', '.join(found[:4])}"

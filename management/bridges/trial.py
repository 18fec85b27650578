"""Tries the ends of a definition step by step, and says at which one it fails. Nothing is declared,
published or consumed."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from broker.client.errors import ClientError
from broker.client.uri import is_here
from broker.schema import shovel_keys, upstream_keys
from management.bridges.ends import NOT_FOUND, End, Ends, failed
from management.bridges.plan import Plan, ShovelFailed, shortened

log = logging.getLogger("leveret.bridges")

TIMEOUT_S = 20.0
TRIALS_AT_ONCE = 8


@dataclass(frozen=True)
class Target:
    """One URI to try. `what` it is, and the queue and the exchange that it names there; those that
    `must` name have to exist."""

    what: str
    uri: str
    names: dict[str, str | None]
    must: tuple[str, ...] = ()


def of_shovel(order: dict[str, Any]) -> tuple[Plan, list[Target]]:
    """What the definition of a shovel names."""
    plan = Plan.of(order)
    found = []
    for what, key in (("Source", "src"), ("Destination", "dest")):
        names = {kind: plan.given[f"{key}-{kind}"] for kind in ("queue", "exchange")}
        must = ("queue", "exchange") if plan.given[f"{key}-predeclared"] else ("exchange",)
        found += [Target(what, uri, names, must) for uri in plan.uris(f"{key}-uri")]
    return plan, found


def of_upstream(order: dict[str, Any]) -> tuple[Plan, list[Target]]:
    """What the definition of an upstream names, and this broker, as which user links act here."""
    value = upstream_keys.settled(order["value"])
    plan = Plan(
        vhost=order["vhost"],
        name=order["name"],
        generation=0,
        owner=order["owner"],
        given=shovel_keys.settled({}),
        on_behalf_of=order["on_behalf_of"],
        label=f"Federation upstream {order['name']}",
    )
    names = {kind: value[kind] for kind in ("queue", "exchange")}
    return plan, [Target("Upstream", uri, names) for uri in upstream_keys.uris(value["uri"])]


class Trial:
    """One trial. `steps` are {step, is_fine, text} in the order in which they were tried."""

    def __init__(self, plan: Plan, targets: list[Target], ends: Ends) -> None:
        self._plan = plan
        self._targets = targets
        self._ends = ends
        self.steps: list[dict[str, Any]] = []

    def note(self, step: str, is_fine: bool, text: str) -> None:
        self.steps.append({"step": step, "is_fine": is_fine, "text": text})

    async def run(self) -> None:
        """Tries each of the targets."""
        for target in self._targets:
            is_web = target.uri.startswith(("http:", "https:"))
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    await (self._web(target) if is_web else self._broker(target))
            except ShovelFailed as error:
                self.note(f"{target.what}: {error.step}", False, error.reason)
            except TimeoutError:
                reason = f"no answer within {TIMEOUT_S:g} seconds"
                self.note(f"{target.what}: connection", False, reason)

    async def _broker(self, target: Target) -> None:
        """Raises ShovelFailed."""
        if not is_here(target.uri):
            await self._resolve(target, self._ends.endpoint(self._plan, target.uri).host)
        end = await self._ends.open(self._plan, target.uri, "trial")
        try:
            secure = " over TLS" if end.connection.endpoint.tls is not None else ""
            text = f"{_shown(end)} lets the user in{secure}"
            self.note(f"{target.what}: connection", True, text)
            for kind, name in target.names.items():
                if name:
                    await self._exists(target, end, kind, name)
        finally:
            with contextlib.suppress(ClientError, OSError):
                await end.connection.close()

    async def _resolve(self, target: Target, host: str) -> list[str]:
        """Raises ShovelFailed."""
        found = await self._ends.addresses.resolve(host)
        self.note(f"{target.what}: address", True, _resolved(host, found))
        return found

    async def _exists(self, target: Target, end: End, kind: str, name: str) -> None:
        step = f"{target.what}: {kind}"
        more: dict[str, Any] = {"type": "direct"} if kind == "exchange" else {}
        try:
            async with end.connection.channel() as channel:
                reply = await channel.call(f"{kind}.declare", **{kind: name}, passive=True, **more)
        except ClientError as error:
            if getattr(error, "code", 0) == NOT_FOUND and kind not in target.must:
                self.note(step, True, f"{kind} '{name}' is not there; it will be declared")
            else:
                self.note(step, False, failed(error, end.shown, is_here=end.is_here).reason)
        else:
            count = reply.get("message_count")
            has = f" and has {count} messages" if count is not None else ""
            self.note(step, True, f"{kind} '{name}' is there{has}")

    async def _web(self, target: Target) -> None:
        """Connects and, with https, checks the certificate. No request is sent. Raises
        ShovelFailed."""
        # Only where it is needed: it takes memory.
        from management.bridges.web import located, reached

        host = urlsplit(target.uri).hostname or ""
        await self._resolve(target, host)
        endpoint = await located(target.uri, self._ends, self._plan)
        await reached(endpoint)
        how = "it accepts connections" if endpoint.context is None else "its certificate is valid"
        self.note(f"{target.what}: connection", True, f"{endpoint.shown}: {how}")


def _shown(end: End) -> str:
    if not end.is_here:
        return end.shown
    return f"this broker, virtual host '{end.connection.endpoint.vhost}',"


def _resolved(host: str, found: list[str]) -> str:
    """What the addresses of a host are, where they are not its name."""
    if found == [host]:
        return f"connections to {host} are allowed"
    return f"{host} is {', '.join(found[:4])}"


class Trials:
    """Those that the broker asks for, some at once. `tell` hands over what one has found."""

    def __init__(self, tell: Callable[[int, list[Any]], Awaitable[None]]) -> None:
        self._tell = tell
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(TRIALS_AT_ONCE)

    def follow(self, orders: list[dict[str, Any]], make: Callable[[Any], Trial]) -> None:
        """Begins those that are new, and ends those whose callers have left."""
        for order in orders:
            id = order["id"]
            if order.get("gone"):
                task = self._tasks.pop(id, None)
                if task is not None:
                    task.cancel()
            elif id not in self._tasks:
                task = self._tasks[id] = asyncio.create_task(self._run(id, make(order)))
                task.add_done_callback(functools.partial(self._ended, id))

    def _ended(self, id: int, _: asyncio.Task[None]) -> None:
        self._tasks.pop(id, None)

    async def _run(self, id: int, trial: Trial) -> None:
        async with self._places:
            try:
                await trial.run()
            except Exception as error:
                log.exception("a trial failed")
                trial.note("trial", False, f"{type(error).__name__}: {shortened(error)}")
            await self._tell(id, trial.steps)

    def stop(self) -> None:
        """Ends all."""
        for task in self._tasks.values():
            task.cancel()

"""Carries messages over HTTP: each is the body of a POST.

2xx settles a message. 408, 425, 429, 5xx, time-outs and lost connections are tried again with
growing waits or when `Retry-After` says; every other answer, a redirect too, refuses the message.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import ssl
import time
import uuid
from collections import deque
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx

from broker.client.aio import Channel
from broker.client.batch import Batch
from broker.client.errors import ClientError, TLSFailed
from broker.client.message import Message
from broker.client.properties import Malformed
from broker.client.tls import context_of, reason_of
from broker.client.uri import TLS
from broker.schema.shovel_keys import BY_SHOVEL
from management.bridges.carrier import (
    AGAIN_FIRST_S,
    AGAIN_MOST_S,
    Ending,
    Limit,
    Reading,
    backoff,
    carry,
)
from management.bridges.ends import Ends
from management.bridges.plan import Plan, ShovelFailed, shortened
from management.bridges.rewrite import MARK
from management.bridges.source import Source
from management.bridges.status import Status

AGAIN = frozenset({408, 425, 429})
WAIT_MOST_S = 300.0
HEADERS_MOST = 50
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
_VALUE = re.compile(r"[\x20-\x7e]{0,1024}", re.ASCII)
_OURS = re.compile(r"shovel|message-id|forwarded|real-ip", re.IGNORECASE)


class Endpoint:
    """Where requests go: the URL at an address that was checked, with the name of its host."""

    def __init__(self, uri: str, address: str, context: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(uri)
        self.context = context
        self.host = parts.hostname or ""
        secure = parts.scheme == "https"
        self.address = address
        self.port = port = parts.port or (443 if secure else 80)
        at = f"[{address}]" if ":" in address else address
        self.base = f"{parts.scheme}://{at}:{port}"
        self.has_path = parts.path not in ("", "/")
        self.path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        named = f"[{self.host}]" if ":" in self.host else self.host
        self.named = named if parts.port is None else f"{named}:{parts.port}"
        self.shown = f"{parts.scheme}://{self.named}{parts.path}"
        self.auth = (
            httpx.BasicAuth(unquote(parts.username), unquote(parts.password or ""))
            if parts.username is not None
            else httpx.USE_CLIENT_DEFAULT
        )
        self.extensions = {"sni_hostname": self.host} if secure else {}


async def located(uri: str, ends: Ends, plan: Plan) -> Endpoint:
    """Resolves and checks the host of a URI. Raises ShovelFailed."""
    found = await ends.addresses.resolve(urlsplit(uri).hostname or "")
    return Endpoint(uri, found[0], _context(ends, plan) if uri.startswith("https:") else None)


async def reached(endpoint: Endpoint) -> None:
    """Connects to it, and leaves. Raises ShovelFailed."""
    try:
        _, writer = await asyncio.open_connection(
            endpoint.address,
            endpoint.port,
            ssl=endpoint.context,
            server_hostname=endpoint.host if endpoint.context is not None else None,
        )
    except OSError as error:
        step = "TLS" if isinstance(error, ssl.SSLError) else "connection"
        raise ShovelFailed(f"{endpoint.shown}: {reason_of(error)}", step=step) from None
    writer.close()


def _context(ends: Ends, plan: Plan) -> ssl.SSLContext:
    """How the certificate of a server is checked: by the authority that the definition names, or by
    those of the system. Raises ShovelFailed."""
    try:
        return context_of(TLS(ca_file=ends.certificate(plan.given["dest-cacertfile"])))
    except TLSFailed as error:
        raise ShovelFailed(str(error), step="TLS") from None


def client(plan: Plan, endpoint: Endpoint) -> httpx.AsyncClient:
    """The client of one attempt. It follows no redirects and asks no proxy."""
    most = plan.given["dest-concurrency"]
    return httpx.AsyncClient(
        timeout=plan.given["dest-timeout"],
        follow_redirects=False,
        trust_env=False,
        verify=endpoint.context if endpoint.context is not None else False,
        limits=httpx.Limits(max_connections=most, max_keepalive_connections=most),
    )


class WebCarrier:
    """One attempt: from its first delivery to its end."""

    def __init__(
        self, plan: Plan, source: Source, endpoint: Endpoint, status: Status, memory: int
    ) -> None:
        self._plan = plan
        self._source = source
        self._endpoint = endpoint
        self._status = status
        self._ending = Ending()
        self._reading = Reading(source.end.connection, memory)
        self._messages: deque[Message] = deque()
        self._open: dict[int, None] = {}
        """Tags that are not settled, in their order."""
        self._has_messages = asyncio.Semaphore(0)
        self._bytes = self._taken = self._settled = self._in_flight = 0
        self._waiting_requests: set[int] = set()
        self._limit: Limit

    async def run(self) -> None:
        """Moves messages until as many are moved as the definition says. Raises ShovelFailed."""
        limit = self._limit = Limit(self._plan, self._status, self._source)
        if limit.is_set and not limit.count:
            return
        self._ending.follow(self._source)
        async with client(self._plan, self._endpoint) as session:
            senders = (
                self._send_each(session) for _ in range(self._plan.given["dest-concurrency"])
            )
            await carry(self._source, limit, self._ending, self._status, self._take, *senders)

    def _take(self, channel: Channel, batch: Batch) -> None:
        is_marked = False
        if self._source.track is not None:
            try:
                is_marked = self._source.track.took(batch)
            except ShovelFailed as error:
                self._ending.fail(error)
                return
        for message in batch.messages():
            if self._limit.is_set and self._taken >= self._limit.count:
                break
            self._taken += 1
            self._bytes += len(message.body) + len(message.properties)
            self._open[message.delivery_tag] = None
            self._messages.append(message._replace(redelivered=True) if is_marked else message)
            self._has_messages.release()
        self._reading.bound(self._bytes)
        self._account()

    async def _send_each(self, session: httpx.AsyncClient) -> None:
        while True:
            await self._has_messages.acquire()
            message = self._messages.popleft()
            if self._source.track is not None:
                await self._source.track.ready()
            self._in_flight += 1
            try:
                await self._send(session, message)
            except ClientError as error:
                raise self._source.failed(error) from None
            finally:
                self._in_flight -= 1

    async def _send(self, session: httpx.AsyncClient, message: Message) -> None:
        """Sends one message until it is settled."""
        headers, path = request_of(self._plan, self._endpoint, message)
        self._status.count("marked", message.redelivered)
        tries = 0
        while True:
            wait, reason, is_refused = await self._try(session, message, headers, path)
            if not reason:
                break
            if is_refused:
                self._status.count("refused", 1)
                if self._plan.given["on-refused"] != "hold":
                    await self._give_up(message)
                    return
            if self._plan.given["ack-mode"] != "on-confirm":
                self._status.count("dropped", 1)
                self._settle(message)
                return
            delay = max(wait, backoff(AGAIN_FIRST_S, AGAIN_MOST_S, tries))
            tries += 1
            self._waiting_requests.add(message.delivery_tag)
            self._status.put("blocked", reason, delay)
            headers[_MARKED] = "true"
            await asyncio.sleep(delay)
        self._waiting_requests.discard(message.delivery_tag)
        if not self._waiting_requests:
            self._status.put("running")
        self._status.count("moved", 1)
        self._status.count("moved_bytes", len(message.body))
        self._settle(message)

    async def _try(
        self, session: httpx.AsyncClient, message: Message, headers: dict[str, str], path: str
    ) -> tuple[float, str, bool]:
        """One request: seconds to wait at least, why it failed (empty: it did not), and whether
        the answer refuses the message."""
        endpoint = self._endpoint
        signed = {**headers, **signature(self._plan, message.body)}
        try:
            response = await session.post(
                endpoint.base + path,
                content=message.body,
                headers=signed,
                auth=endpoint.auth,
                extensions=endpoint.extensions,
            )
        except httpx.TimeoutException:
            limit = self._plan.given["dest-timeout"]
            return 0.0, f"{endpoint.shown}: no answer within {limit} seconds", False
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return 0.0, f"{endpoint.shown}: {shortened(error) or type(error).__name__}", False
        status = response.status_code
        if 200 <= status < 300:
            return 0.0, "", False
        again = status in AGAIN or status >= 500
        wait = retry_after(response.headers.get("retry-after", "")) if again else 0.0
        what = "a redirect, which is not followed" if 300 <= status < 400 else "an error"
        return wait, f"{endpoint.shown} answers {status}, {what}", not again

    async def _give_up(self, message: Message) -> None:
        """What was refused for good."""
        if self._plan.given["on-refused"] == "drop":
            self._status.count("dropped", 1)
            self._settle(message)
            return
        await self._source.dead_letter(message)
        if self._plan.given["dead-letter-queue"] is None:
            self._source.channel.core.nack(message.delivery_tag, False, False)
        else:
            self._source.channel.core.ack(message.delivery_tag, False)
        self._status.count("dead_lettered", 1)
        self._settle(message, is_acked=True)

    def _settle(self, message: Message, *, is_acked: bool = False) -> None:
        most = self._limit.ack_most
        if self._plan.acks and not is_acked and (most < 0 or message.delivery_tag <= most):
            self._source.channel.core.ack(message.delivery_tag, False)
        self._source.end.connection.flush()
        self._settled += 1
        self._open.pop(message.delivery_tag, None)
        if self._source.track is not None:
            first = next(iter(self._open), None)
            self._source.track.settled(None if first is None else first - 1)
        self._bytes -= len(message.body) + len(message.properties)
        self._reading.bound(self._bytes)
        self._account()
        if self._limit.is_set:
            self._status.remaining = self._limit.count - self._settled
            if self._settled >= self._limit.count:
                self._ending.finish()

    def _account(self) -> None:
        self._status.in_flight = self._taken - self._settled
        self._status.held = len(self._waiting_requests)


_MARKED = "X-Shovel-Redelivered"


def request_of(plan: Plan, endpoint: Endpoint, message: Message) -> tuple[dict[str, str], str]:
    """Headers and path of the request for a message. The Idempotency-Key is the same in every try
    of it: the message-id, if it has one."""
    try:
        properties = message.decoded()
    except Malformed:
        properties = {}
    table: dict[str, Any] = properties.get("headers") or {}
    id = str(properties.get("message_id") or "")
    headers = {
        "Host": endpoint.named,
        "User-Agent": "Leveret",
        BY_SHOVEL: _shown(plan.name),
        "Idempotency-Key": _shown(id) or str(uuid.uuid4()),
        "Content-Type": _shown(properties.get("content_type") or "") or "application/octet-stream",
    }
    if _shown(id):
        headers["X-Message-Id"] = _shown(id)
    if _shown(properties.get("content_encoding") or ""):
        headers["Content-Encoding"] = _shown(properties["content_encoding"])
    for name, value in list(table.items())[:HEADERS_MOST]:
        if _NAME.fullmatch(name) and not _OURS.match(name) and isinstance(value, str | int | float):
            headers[f"X-{name}"] = _shown(value)
    if message.redelivered or table.get(MARK) is True:
        headers[_MARKED] = "true"
    for name, value in (plan.given["dest-headers"] or {}).items():
        headers[name] = value
    path = endpoint.path
    wanted = table.get("uri_path")
    if not endpoint.has_path and isinstance(wanted, str) and re.fullmatch(r"/[!-~]*", wanted):
        path = wanted
    return headers, path


def _shown(value: Any) -> str:
    """A value as a header may hold it; empty if it cannot."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if _VALUE.fullmatch(text) else ""


def signature(plan: Plan, body: bytes) -> dict[str, str]:
    """Headers with the time and the HMAC-SHA256 over time, a point and the body."""
    secret = plan.given["dest-signature-secret"]
    if not secret:
        return {}
    now = str(int(time.time()))
    digest = hmac.digest(secret.encode(), now.encode() + b"." + body, hashlib.sha256).hex()
    return {"X-Shovel-Timestamp": now, "X-Shovel-Signature": f"sha256={digest}"}


def retry_after(text: str) -> float:
    """Seconds of a header Retry-After, at most WAIT_MOST_S; 0 where it says nothing."""
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), WAIT_MOST_S)
    try:
        at = parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return max(0.0, min(at - time.time(), WAIT_MOST_S))

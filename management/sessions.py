"""Sessions without a database: a signed cookie names the user, the user's epoch and a session id.

The broker knows which sessions have ended and which epoch each user is at. Its answers are
remembered here as long as its events arrive, which say when one stops being true; while they do
not arrive, every request asks anew.
"""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.core import signing
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect

from broker.settings.bounds import LIVE_REQUEST_MAX
from management import refusals
from management.appliance import broker
from management.broker_client import BrokerError, Push
from management.cookies import cookies_of
from management.middleware import Middleware
from management.paths import Application, Receive, Scope, Send
from management.request_user import ANONYMOUS, User
from management.websocket_protocol import signed_in

log = logging.getLogger(__name__)

SALT = "leveret.session"
SIGNED_OUT = 4401
"""Close code of a live socket whose session is over: the page should go to the sign-in form."""
TRY_AGAIN_LATER = 1013
REMEMBERED_AT_MOST = 10_000


@dataclass(frozen=True, slots=True)
class Login:
    """What the cookie says. `expires_at`: milliseconds since 1970."""

    name: str
    epoch: int
    session_id: str
    expires_at: int


def begin(name: str, epoch: int) -> Login:
    """A new session of a user whose password was just accepted."""
    expires_at = int((time.time() + settings.SESSION_COOKIE_AGE) * 1000)
    return Login(name, epoch, secrets.token_urlsafe(16), expires_at)


def write_cookie(response: HttpResponseBase, login: Login, *, secure: bool) -> None:
    value = signing.dumps([login.name, login.epoch, login.session_id, login.expires_at], salt=SALT)
    response.set_cookie(
        settings.SESSION_COOKIE_NAME,
        value,
        max_age=settings.SESSION_COOKIE_AGE,
        secure=secure or settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite=settings.SESSION_COOKIE_SAMESITE,
    )


def read_cookie(value: str | None) -> Login | None:
    """The login a cookie holds; None when it is absent, altered or too old."""
    if not value:
        return None
    try:
        fields = signing.loads(value, salt=SALT, max_age=settings.SESSION_COOKIE_AGE)
        login = Login(*fields)
    except (signing.BadSignature, TypeError):
        return None
    return login if login.expires_at > time.time() * 1000 else None


class Sessions:
    """The valid sessions, as far as the broker has reported, and the callbacks for their end."""

    def __init__(self) -> None:
        self._standing: dict[Login, User] = {}
        self._listening = False
        self._watchers: dict[Login, set[Callable[[], None]]] = {}

    async def user_of(self, login: Login | None) -> User:
        """The session's user, or `ANONYMOUS` when it is over. Raises `BrokerError` when away."""
        if login is None:
            return ANONYMOUS
        user = self._standing.get(login)
        if user is not None and login.expires_at > time.time() * 1000:
            return user
        answer = await broker().call(
            "session.valid", user=login.name, epoch=login.epoch, session_id=login.session_id
        )
        if not answer["valid"]:
            return ANONYMOUS
        user = User(login.name, tuple(answer["tags"]))
        if self._listening:
            if len(self._standing) >= REMEMBERED_AT_MOST:
                self._standing.clear()
            self._standing[login] = user
        return user

    async def end(self, login: Login) -> None:
        """Sign out: the broker remembers the id until the cookie would have expired."""
        self._standing.pop(login, None)
        await broker().call("session.end", session_id=login.session_id, expires_at=login.expires_at)
        self._tell(lambda other: other.session_id == login.session_id)

    @contextlib.contextmanager
    def watching(self, login: Login, ended: Callable[[], None]) -> Any:
        """Calls `ended` once when the session ends while inside the block."""
        watchers = self._watchers.setdefault(login, set())
        watchers.add(ended)
        try:
            yield
        finally:
            watchers.discard(ended)
            if not watchers:
                self._watchers.pop(login, None)

    async def listen(self) -> None:
        """Follow the broker's events for ever; cancel to stop."""
        while True:
            try:
                async with contextlib.aclosing(broker().subscribe(topic="events")) as pushes:
                    async for push in pushes:
                        await self._take(push)
            except BrokerError as error:
                log.warning("session events cannot be followed: %s", error)
            finally:
                self._listening = False
                self._standing.clear()
            await asyncio.sleep(1)

    async def _take(self, push: Push) -> None:
        data = push.data if isinstance(push.data, dict) else {}
        if push.event in ("away", "resync"):
            self._listening = False
            self._standing.clear()
        elif push.event == "session.ended":
            self._forget(lambda login: login.session_id == data.get("session_id"))
        elif push.event == "user.deleted":
            self._forget(lambda login: login.name == data.get("name"))
        elif push.event == "user.changed":
            name, epoch = data.get("name"), data.get("epoch")
            self._standing = {k: v for k, v in self._standing.items() if k.name != name}
            self._tell(lambda login: login.name == name and login.epoch != epoch)
        if push.event == "start":
            self._listening = True
            await self._check_watched()

    async def _check_watched(self) -> None:
        for login in list(self._watchers):
            try:
                user = await self.user_of(login)
            except BrokerError:
                return
            if user is ANONYMOUS:
                self._tell(login.__eq__)

    def _forget(self, over: Callable[[Login], bool]) -> None:
        self._standing = {k: v for k, v in self._standing.items() if not over(k)}
        self._tell(over)

    def _tell(self, over: Callable[[Login], bool]) -> None:
        for login, watchers in list(self._watchers.items()):
            if over(login):
                for ended in list(watchers):
                    ended()


SESSIONS = Sessions()


def public(view: Any) -> Any:
    """Mark a view that needs no session. Every other view outside `/api/` sends to the form."""
    view.is_public = True
    return view


class SessionMiddleware(Middleware):
    """Sets `request.user` and `request.login`; views that are not `public` need a signed-in user.

    A request of htmx gets 401 with `HX-Redirect`, any other a redirect to the sign-in form.
    """

    async def __call__(self, request: HttpRequest) -> HttpResponseBase:
        login = read_cookie(request.COOKIES.get(settings.SESSION_COOKIE_NAME))
        request.login, request.user = None, ANONYMOUS
        if login is not None:
            try:
                user = await SESSIONS.user_of(login)
            except BrokerError as error:
                return refusals.answer(request, error)
            if user.is_management:
                request.login, request.user = login, user
        return await self.get_response(request)

    async def process_view(
        self, request: HttpRequest, view: Any, args: Any, kwargs: Any
    ) -> HttpResponseBase | None:
        if request.path.startswith("/api/") or getattr(view, "is_public", False):
            return None
        if request.user.is_authenticated:
            return None
        wanted = request.path + (f"?{request.META['QUERY_STRING']}" if request.GET else "")
        wanted = quote(wanted, safe="")
        # Django refuses, with a traceback, to send anyone to an address above 16 KiB.
        target = settings.LOGIN_URL + (f"?next={wanted}" if len(wanted) <= NEXT_MAX else "")
        if request.headers.get("HX-Request"):
            return HttpResponse(status=401, headers={"HX-Redirect": settings.LOGIN_URL})
        if request.method in ("GET", "HEAD"):
            return HttpResponseRedirect(target)
        return HttpResponse("Sign in first.", status=401, content_type="text/plain")


NEXT_MAX = 8 * 1024
"""Characters, in their quoted form, of an address that a login leads to."""


class SessionOver(Exception):
    """The session on whose behalf something is sent has ended."""


class SessionEnd:
    """The end of a session, for who sends something as long as it stands; without a session, as for
    a client with a password, there is none. To be closed."""

    def __init__(self, login: Login | None) -> None:
        self._login = login
        self._over = asyncio.Event()
        self._watch = contextlib.ExitStack()
        if login is not None:
            self._watch.enter_context(SESSIONS.watching(login, self._over.set))

    async def check(self) -> None:
        """Raises SessionOver if the session has ended already, BrokerError when away."""
        if self._login is not None and await SESSIONS.user_of(self._login) is ANONYMOUS:
            raise SessionOver

    async def unless(self, future: asyncio.Future[Any]) -> Any:
        """The result of the future. Raises SessionOver if the session ends before, and cancels
        the future; so it does when the caller is cancelled."""
        ended = asyncio.ensure_future(self._over.wait())
        left = None
        if self._login is not None:
            left = max(0.0, self._login.expires_at / 1000 - time.time())
        try:
            await asyncio.wait({future, ended}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if self._over.is_set() or not future.done():
                raise SessionOver
            return future.result()
        finally:
            ended.cancel()
            future.cancel()

    def close(self) -> None:
        self._watch.close()


class SessionSocket:
    """ASGI wrapper for live sockets: sets `scope["user"]`, and closes them when the session ends.

    Without a standing session the socket is accepted and closed with `SIGNED_OUT`, so that the
    page can tell this from a broker that is away (`TRY_AGAIN_LATER`).
    """

    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        login = read_cookie(cookies_of(scope).get(settings.SESSION_COOKIE_NAME))
        try:
            user = await SESSIONS.user_of(login)
        except BrokerError:
            await _refuse(receive, send, TRY_AGAIN_LATER)
            return
        if login is None or not user.is_management:
            await _refuse(receive, send, SIGNED_OUT)
            return
        signed_in(scope, LIVE_REQUEST_MAX)
        over = asyncio.Event()
        with SESSIONS.watching(login, over.set):
            served = asyncio.ensure_future(
                self.application({**scope, "user": user, "login": login}, receive, send)
            )
            remaining = login.expires_at / 1000 - time.time()
            ended = asyncio.ensure_future(over.wait())
            try:
                await asyncio.wait(
                    {served, ended},
                    timeout=max(remaining, 0),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if not served.done():
                    with contextlib.suppress(Exception):
                        await send({"type": "websocket.close", "code": SIGNED_OUT})
            finally:
                ended.cancel()
                served.cancel()
                results = await asyncio.gather(served, ended, return_exceptions=True)
        if isinstance(results[0], Exception):
            raise results[0]


async def _refuse(receive: Receive, send: Send, code: int) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.close", "code": code})

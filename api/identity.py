"""Who calls: HTTP basic authentication, or the session of the pages.

A session needs the CSRF token with every call that changes something. A browser also attaches
remembered basic credentials to requests that another site's page makes; such requests carry that
page's Origin and are refused.
"""

import base64
import binascii

from django.http import HttpRequest
from ninja.security import HttpBasicAuth
from ninja.utils import check_csrf

from api.middleware import take_body
from broker.schema.control_schema import Tag
from broker.schema.sight import has_tag
from management.appliance import broker, config
from management.broker_client import BrokerError
from management.hosts import origin_allowed
from management.peer import is_told, peer_of
from management.request_user import User
from management.seen import SEEN

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


class NoCredentials(Exception):
    """401 with an empty body and the challenge."""


class ForeignOrigin(Exception):
    """403: a page of another site made this request, or the CSRF token is missing."""


class BasicOrSession(HttpBasicAuth):
    """Sets `request.user`. Raises `BrokerError` for credentials that the broker refuses, and for a
    user without the tag: before a body is read, so that its faults are shown only to who may send
    one. The broker asks for the tag again, as its table of verbs says."""

    def __init__(self, tag: Tag = "management") -> None:
        super().__init__()
        self.tag = tag

    async def __call__(self, request: HttpRequest) -> User:
        has_session = request.headers.get("Authorization") is None
        request.user = user = await self._user(request)
        if not has_tag(user.tags, self.tag):
            word = "monitor" if self.tag == "monitoring" else self.tag
            raise BrokerError(401, "not_authorised", f"Not {word} user")
        await take_body(request)
        # The check may look for the token in a form's fields, too.
        if has_session and request.method not in SAFE_METHODS and check_csrf(request) is not None:
            raise ForeignOrigin(
                "the CSRF token is missing or wrong; send it in the header X-CSRFToken"
            )
        return user

    async def _user(self, request: HttpRequest) -> User:
        scope = request.scope
        if not origin_allowed(scope, config().allowed_origins):
            raise ForeignOrigin("the origin of this request is not allowed here")
        value = request.headers.get("Authorization")
        if value is not None:
            return await self.authenticate(request, *credentials(value))
        user: User = request.user
        if not user.is_authenticated:
            raise NoCredentials
        return user

    async def authenticate(self, request: HttpRequest, username: str, password: str) -> User:
        scope, value = request.scope, request.headers["Authorization"]
        peer = peer_of(scope)
        # Through a trusted proxy the connection is of many clients.
        seen = None if is_told(scope) else scope.get(SEEN)
        again = seen is not None and seen.was_let_in(peer, value)
        try:
            found = await broker().authenticate(username, password, peer, again=again)
        except BrokerError:
            if seen is not None:
                seen.forget()
            raise
        if seen is not None:
            seen.let_in(peer, value)
        return User(found["name"], tuple(found["tags"]))


def claimed(request: HttpRequest) -> str | None:
    """Whose name a call has that was not let in; None if its user is known."""
    if request.user.is_authenticated:
        return None
    try:
        return credentials(request.headers.get("Authorization", ""))[0]
    except NoCredentials:
        return ""


ADMINISTRATOR = BasicOrSession("administrator")
POLICYMAKER = BasicOrSession("policymaker")


def credentials(value: str) -> tuple[str, str]:
    """Name and password of an Authorization header (RFC 7617), in UTF-8 or else Latin-1.

    Raises `NoCredentials` for other schemes and for anything malformed.
    """
    scheme, _, encoded = value.strip().partition(" ")
    try:
        if scheme.lower() != "basic":
            raise NoCredentials
        decoded = base64.b64decode(encoded.strip(), validate=True)
    except (binascii.Error, ValueError):
        raise NoCredentials from None
    try:
        text = decoded.decode("utf-8")
    except UnicodeDecodeError:
        text = decoded.decode("latin-1")
    name, colon, password = text.partition(":")
    if not colon:
        raise NoCredentials
    return name, password

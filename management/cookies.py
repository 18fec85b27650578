"""The cookies of a request, read in linear time: only those that this appliance sets itself.

Python's own parser takes quadratic time for a value with many backslashes before 3.11.10 and
3.12.6 (CVE-2024-7592), and a request carries its cookies before a user has signed in. None of
our values needs quotes or escapes, so none are undone here.
"""

from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponseBase

from management.middleware import Middleware
from management.paths import Scope

VALUE_MAX = 4096
"""Octets; browsers keep no longer ones."""


def cookies_of(scope: Scope) -> dict[str, str]:
    """Our cookies by name. Of several with one name the first counts, whose path is longest
    (RFC 6265, section 5.4)."""
    wanted = {
        name.encode(): name for name in (settings.SESSION_COOKIE_NAME, settings.CSRF_COOKIE_NAME)
    }
    found: dict[str, str] = {}
    for header, line in scope["headers"]:
        if header != b"cookie":
            continue
        for pair in line.split(b";"):
            name, _, value = pair.partition(b"=")
            known = wanted.get(name.strip())
            if known is not None and known not in found and len(value) <= VALUE_MAX:
                found[known] = value.strip().decode("latin-1")
    return found


class Cookies(Middleware):
    """The first middleware: sets `request.COOKIES`, which Django would parse otherwise."""

    async def __call__(self, request: HttpRequest) -> HttpResponseBase:
        assert isinstance(request, ASGIRequest)
        request.COOKIES = cookies_of(request.scope)
        return await self.get_response(request)

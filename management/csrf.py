"""Django's CSRF check without a thread: it only computes, so it need not leave the event loop."""

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django.middleware.csrf import CsrfViewMiddleware


class CsrfMiddleware(CsrfViewMiddleware):
    """The same checks. As it comes, each request would wait for three turns of a thread."""

    async def __acall__(self, request: HttpRequest) -> HttpResponseBase:
        self.process_request(request)
        response = await self.get_response(request)
        return self.process_response(request, response)

    def _set_csrf_cookie(self, request: HttpRequest, response: HttpResponseBase) -> None:
        super()._set_csrf_cookie(request, response)
        if request.is_secure():
            # The setting is one for both ports, and the plain one has no use for such a cookie.
            response.cookies[settings.CSRF_COOKIE_NAME]["secure"] = True

    async def process_view(
        self, request: HttpRequest, callback: Any, callback_args: Any, callback_kwargs: Any
    ) -> HttpResponseBase | None:
        return super().process_view(request, callback, callback_args, callback_kwargs)

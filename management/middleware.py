"""What all of our middlewares have in common: they run on the event loop, without a thread."""

from collections.abc import Awaitable, Callable

from asgiref.sync import markcoroutinefunction
from django.http import HttpRequest, HttpResponseBase

GetResponse = Callable[[HttpRequest], Awaitable[HttpResponseBase]]


class Middleware:
    """Passes each request on; what a middleware does is in the methods that it adds."""

    async_capable = True
    sync_capable = False

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response
        markcoroutinefunction(self)

    async def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return await self.get_response(request)

"""Django's ASGI handler, without what it leaves for the garbage collector after each request."""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler

_ended: ContextVar[list[RequestAborted]] = ContextVar("ended")


class Handler(ASGIHandler):
    """Answers requests.

    Django waits in a task for the client to go, which ends with an exception when the response is
    sent. Its traceback refers to the frame that refers to the task: the request, its response and
    150 more objects would be garbage in a circle. So the traceback is taken away.
    """

    async def handle(
        self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[..., Any]
    ) -> None:
        ended: list[RequestAborted] = []
        _ended.set(ended)
        try:
            await super().handle(scope, receive, send)
        finally:
            for error in ended:
                error.__traceback__ = None
            ended.clear()

    async def listen_for_disconnect(self, receive: Callable[[], Awaitable[Any]]) -> None:
        try:
            await super().listen_for_disconnect(receive)
        except RequestAborted as error:
            _ended.get().append(error)
            raise

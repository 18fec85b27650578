"""Django's ASGI handler, without what it leaves for the garbage collector after each request, and
without the thread it starts for each."""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler
from django.db import close_old_connections, reset_queries

_ended: ContextVar[list[RequestAborted]] = ContextVar("ended")


class Handler(ASGIHandler):
    """Answers requests.

    Django waits in a task for the client to go, which ends with an exception when the response is
    sent. Its traceback refers to the frame that refers to the task: the request, its response and
    150 more objects would be garbage in a circle. So the traceback is taken away.

    Django has a thread for what is not asynchronous, a new one for each request: the loop waits
    until it has started and again until it has ended, which at a low priority on a busy machine
    takes many times the request's own work. Here one thread serves all requests; it closes their
    responses. There is no database, so nothing is to be done when a request begins.
    """

    def __init__(self) -> None:
        super().__init__()
        for receiver in (reset_queries, close_old_connections):
            signals.request_started.disconnect(receiver)

    async def __call__(
        self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[..., Any]
    ) -> None:
        await self.handle(scope, receive, send)

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

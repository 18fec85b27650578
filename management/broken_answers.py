"""Answers that end in the middle, because what they are made of does not come any more.

Their status is sent already. The connection is closed without the end of the answer, so that the
client does not take a part for the whole.
"""

import logging

from management.paths import Application, Receive, Scope, Send

log = logging.getLogger(__name__)


class BrokenAnswer(Exception):
    """Raised while a streamed answer is sent; the text says why it ends."""


class BrokenAnswers:
    """Leaves such an answer without its end, and says so in one line: the server closes its
    connection then."""

    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self.application(scope, receive, send)
        except BrokenAnswer as fault:
            log.warning("%s %s broken off: %s", scope["method"], ascii(scope["path"]), fault)
